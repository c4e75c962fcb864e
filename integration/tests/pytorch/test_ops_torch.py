"""Every operation of Tensor against PyTorch, forward and backward, on the device that DEVICE names (default CPU).

A row is a name, the expression for us, the expression for PyTorch, and the shapes of its float32 arguments. Shapes
include 0-d ones, sizes 0 and 1, and odd sizes. Values are standard normal unless `low` and `high` are given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from torch_rows import Row, check_forward_and_backward, same

from tiny_tensor import Context, Tensor, dtypes

torch: Any = pytest.importorskip("torch")
F = torch.nn.functional
DEVICE = os.environ.get("DEVICE") or "CPU"


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
  with Context(DEVICE=DEVICE):
    yield


UNARY = [
  *same("abs", lambda x: x.abs()),
  *same("neg", lambda x: -x),
  *same("exp", lambda x: x.exp()),
  *same("exp2", lambda x: x.exp2()),
  *same("log", lambda x: x.log(), low=0.1, high=5),
  *same("log2", lambda x: x.log2(), low=0.1, high=5),
  *same("log10", lambda x: x.log10(), low=0.1, high=5),
  *same("sqrt", lambda x: x.sqrt(), low=0.1, high=5),
  *same("rsqrt", lambda x: x.rsqrt(), low=0.1, high=5),
  *same("reciprocal", lambda x: x.reciprocal(), low=0.5, high=5),
  *same("square", lambda x: x.square()),
  *same("sin", lambda x: x.sin(), low=-30, high=30),
  *same("cos", lambda x: x.cos(), low=-30, high=30),
  *same("tan", lambda x: x.tan(), low=-1.4, high=1.4),
  *same("asin", lambda x: x.asin(), low=-0.99, high=0.99),
  *same("acos", lambda x: x.acos(), low=-0.99, high=0.99),
  *same("atan", lambda x: x.atan(), low=-9, high=9),
  *same("sinh", lambda x: x.sinh()),
  *same("cosh", lambda x: x.cosh()),
  *same("tanh", lambda x: x.tanh(), low=-9, high=9),
  *same("asinh", lambda x: x.asinh(), low=-50, high=50),
  *same("acosh", lambda x: x.acosh(), low=1.1, high=50),
  *same("atanh", lambda x: x.atanh(), low=-0.95, high=0.95),
  *same("erf", lambda x: x.erf(), low=-5, high=5),
  *same("floor", lambda x: x.floor(), grad=False, low=-4, high=4),
  *same("ceil", lambda x: x.ceil(), grad=False, low=-4, high=4),
  *same("trunc", lambda x: x.trunc(), grad=False, low=-4, high=4),
  *same("round", lambda x: x.round(), grad=False, low=-4, high=4),
  *same("sign", lambda x: x.sign(), grad=False),
  *same("isnan", lambda x: x.isnan(), grad=False),
  *same("isinf", lambda x: x.isinf(), grad=False),
  *same("isfinite", lambda x: x.isfinite(), grad=False),
  *same("logical_not", lambda x: x.logical_not(), grad=False),
  *same("clamp", lambda x: x.clamp(-0.5, 0.5)),
  *same("clip_min", lambda x: x.clip(-0.5, None)),
  *same("pow2", lambda x: x**2),
  *same("pow3.0", lambda x: x**3.0),
  *same("pow-1", lambda x: x**-1, low=0.5, high=3),
  *same("pow0", lambda x: x**0, grad=False),
  *same("pow0.5", lambda x: x**0.5, low=0.5, high=3),
  *same("pow1.7", lambda x: x**1.7, low=0.5, high=3),
  *same("rpow", lambda x: 2.5**x),
  *same("rdiv", lambda x: 3 / x, low=0.5, high=3),
  *same("rsub", lambda x: 3 - x),
  *same("scalar", lambda x: (x + 1) * 2 - 0.5),
]

ACTIVATIONS = [
  *same("relu", lambda x: x.relu()),
  *same("relu6", lambda x: x.relu6(), F.relu6, low=-9, high=9),
  *same("sigmoid", lambda x: x.sigmoid(), low=-100, high=100),
  *same("silu", lambda x: x.silu(), F.silu),
  *same("swish", lambda x: x.swish(), F.silu),
  *same("elu", lambda x: x.elu(0.7), lambda x: F.elu(x, 0.7)),
  *same("celu", lambda x: x.celu(0.7), lambda x: F.celu(x, 0.7)),
  *same("selu", lambda x: x.selu(), F.selu),
  *same("gelu", lambda x: x.gelu(), lambda x: F.gelu(x, approximate="tanh")),
  *same("quick_gelu", lambda x: x.quick_gelu(), lambda x: x * (1.702 * x).sigmoid()),
  *same("leaky_relu", lambda x: x.leaky_relu(0.1), lambda x: F.leaky_relu(x, 0.1)),
  *same("softplus", lambda x: x.softplus(2.0), lambda x: F.softplus(x, 2.0), low=-9, high=9),
  *same("mish", lambda x: x.mish(), F.mish),
  *same("softsign", lambda x: x.softsign(), F.softsign),
  *same("logsigmoid", lambda x: x.logsigmoid(), F.logsigmoid, low=-90, high=90),
  *same("hardtanh", lambda x: x.hardtanh(), F.hardtanh),
  *same("hardsigmoid", lambda x: x.hardsigmoid(), F.hardsigmoid, low=-5, high=5),
  *same("hardswish", lambda x: x.hardswish(), F.hardswish, low=-5, high=5),
  *same("softmax", lambda x: x.softmax(-1), None, ((3, 5),), ((7,),), ((2, 1, 4),), low=-50, high=50),
  *same("log_softmax", lambda x: x.log_softmax(0), None, ((3, 5),), ((7,),), low=-50, high=50),
  *same("softmin", lambda x: x.softmin(-1), lambda x: F.softmin(x, -1), ((3, 5),)),
  *same("logsumexp", lambda x: x.logsumexp(1), None, ((3, 5),), low=-50, high=50),
  *same("layernorm", lambda x: x.layernorm(), lambda x: F.layer_norm(x, (x.shape[-1],)), ((3, 5),), ((2, 3, 7),)),
  *same("normalize", lambda x: x.normalize(2.0, 1), lambda x: F.normalize(x, 2.0, 1), ((3, 5),)),
]

PAIRS = (((3, 5), (3, 5)), ((3, 5), (5,)), ((2, 1, 4), (3, 1)), ((), (4,)), ((0, 3), (1, 3)), ((1,), (7, 1)))
BINARY = [
  *same("add", lambda x, y: x + y, None, *PAIRS),
  *same("sub", lambda x, y: x - y, None, *PAIRS),
  *same("mul", lambda x, y: x * y, None, *PAIRS),
  *same("div", lambda x, y: x / y, None, *PAIRS, low=0.5, high=3),
  *same("floordiv", lambda x, y: x // y, None, *PAIRS, grad=False),
  *same("mod", lambda x, y: x % y, None, *PAIRS, grad=False),
  *same("fmod", lambda x, y: x.fmod(y), None, *PAIRS, grad=False),
  *same("div_floor", lambda x, y: x.div(y, rounding_mode="floor"), None, *PAIRS, grad=False),
  *same("div_trunc", lambda x, y: x.div(y, rounding_mode="trunc"), None, *PAIRS, grad=False),
  *same("pow", lambda x, y: x**y, None, *PAIRS, low=0.3, high=3),
  *same("maximum", lambda x, y: x.maximum(y), None, *PAIRS),
  *same("minimum", lambda x, y: x.minimum(y), None, *PAIRS),
  *same("lt", lambda x, y: x < y, None, *PAIRS, grad=False),
  *same("le", lambda x, y: x <= y, None, *PAIRS, grad=False),
  *same("gt", lambda x, y: x > y, None, *PAIRS, grad=False),
  *same("ge", lambda x, y: x >= y, None, *PAIRS, grad=False),
  *same("eq", lambda x, y: x == y, None, *PAIRS, grad=False),
  *same("ne", lambda x, y: x != y, None, *PAIRS, grad=False),
  *same("where", lambda x, y: (x > 0).where(x, y), lambda x, y: torch.where(x > 0, x, y), *PAIRS),
  *same("lerp", lambda x, y: x.lerp(y, 0.3), None, ((3, 5), (3, 5))),
  *same("copysign", lambda x, y: x.copysign(y), None, *PAIRS),
  *same("logaddexp", lambda x, y: x.logaddexp(y), None, *PAIRS, low=-30, high=30),
  *same("isclose", lambda x, y: x.isclose(y, rtol=0.5), None, ((3, 5), (3, 5)), grad=False),
]

REDUCTIONS = [
  *same("sum", lambda x: x.sum()),
  *same("sum0", lambda x: x.sum(0), None, ((3, 5),), ((1, 4),), ((0, 3),), ((3, 0),)),
  *same("sum_keep", lambda x: x.sum(-1, keepdim=True), None, ((3, 5),), ((2, 3, 4),)),
  *same("sum_axes", lambda x: x.sum((0, 2)), None, ((2, 3, 4),)),
  *same("sum_long", lambda x: x.sum(), None, ((70000,),), tolerance=1e-3),
  *same("prod", lambda x: x.prod(), None, ((3, 5),), ((),), ((0,),)),
  *same("prod1", lambda x: x.prod(1), None, ((3, 5),)),
  *same("mean", lambda x: x.mean(1), None, ((3, 5),), ((2, 3, 4),)),
  *same("max", lambda x: x.max(), None, ((3, 5),), ((),)),
  *same("max1", lambda x: x.max(1), lambda x: x.amax(1), ((3, 5),), ((2, 3, 4),)),
  *same("min1", lambda x: x.min(1), lambda x: x.amin(1), ((3, 5),), ((2, 3, 4),)),
  *same("any", lambda x: (x > 1).any(1), None, ((3, 5),), ((3, 0),), grad=False),
  *same("all", lambda x: (x > -1).all(1), None, ((3, 5),), ((3, 0),), grad=False),
  *same("var", lambda x: x.var(1), None, ((3, 5),), ((2, 3, 4),)),
  *same("var0", lambda x: x.var(1, correction=0), None, ((3, 5),)),
  *same("std", lambda x: x.std(1), None, ((3, 5),)),
  *same("std_mean", lambda x: x.std_mean(1)[1], lambda x: torch.std_mean(x, 1)[1], ((3, 5),)),
  *same("var_mean", lambda x: x.var_mean(1)[0], lambda x: torch.var_mean(x, 1)[0], ((3, 5),)),
  *same("argmax", lambda x: x.argmax(1), None, ((3, 5),), ((4, 1),), grad=False),
  *same("argmax_all", lambda x: x.argmax(), None, ((3, 5),), ((),), grad=False),
  *same("argmin", lambda x: x.argmin(0), None, ((3, 5),), grad=False),
  *same("cumsum", lambda x: x.cumsum(1), None, ((3, 5),), ((2, 1),), ((2, 600),), tolerance=2e-4),
  *same("cumprod", lambda x: x.cumprod(0), None, ((5, 2),)),
  *same("cummax", lambda x: x.cummax(1)[0], None, ((3, 7),), ((2, 300),), grad=False),
  *same("cummax_at", lambda x: x.cummax(1)[1], None, ((3, 7),), ((2, 300),), grad=False),
  *same("cummin", lambda x: x.cummin(0)[0], None, ((7, 2),), grad=False),
  *same("cummin_at", lambda x: x.cummin(0)[1], None, ((7, 2),), grad=False),
  *same("logcumsumexp", lambda x: x.logcumsumexp(1), None, ((3, 7),), low=-20, high=20),
  *same("sort", lambda x: x.sort(1)[0], None, ((3, 7),), ((2, 1),)),
  *same("sort_at", lambda x: x.sort(1, descending=True)[1], None, ((3, 7),), grad=False),
  *same("sort_long", lambda x: x.sort(0)[0], None, ((1500,),), grad=False),
  *same("argsort", lambda x: x.argsort(0), None, ((7, 2),), grad=False),
  *same("topk", lambda x: x.topk(3, 1)[0], None, ((3, 7),)),
  *same("topk_small", lambda x: x.topk(2, 0, largest=False)[0], None, ((7, 3),)),
]

MOVEMENT = [
  *same("reshape", lambda x: x.reshape(5, -1), None, ((3, 5),)),
  *same("flatten", lambda x: x.flatten(1), None, ((2, 3, 4),)),
  *same("unflatten", lambda x: x.unflatten(1, (2, 3)), None, ((2, 6),)),
  *same("permute", lambda x: x.permute(2, 0, 1), None, ((2, 3, 4),)),
  *same("transpose", lambda x: x.transpose(0, 1), None, ((2, 3, 4),)),
  *same("T", lambda x: x.T, None, ((2, 3),)),
  *same("flip", lambda x: x.flip(0, 1), None, ((2, 3, 4),)),
  *same("expand", lambda x: x.expand(4, 3, 5), None, ((3, 1),)),
  *same("squeeze", lambda x: x.squeeze(), None, ((1, 3, 1),)),
  *same("unsqueeze", lambda x: x.unsqueeze(-1), None, ((2, 3),), ((),)),
  *same("repeat", lambda x: x.repeat(2, 3, 2), None, ((2, 3),)),
  *same("repeat_interleave", lambda x: x.repeat_interleave(2, 1), None, ((2, 3),)),
  *same("roll", lambda x: x.roll((1, -2), (0, 1)), None, ((3, 5),)),
  *same("roll_flat", lambda x: x.roll(4), None, ((3, 5),)),
  *same("diagonal", lambda x: x.diagonal(1), None, ((3, 5),), ((4, 4, 2),)),
  *same("diagonal-1", lambda x: x.diagonal(-2, 1, 2), None, ((2, 5, 3),)),
  *same("diag", lambda x: x.diag(), None, ((4,),)),
  *same("triu", lambda x: x.triu(1), None, ((4, 5),), ((2, 3, 3),)),
  *same("tril", lambda x: x.tril(-1), None, ((4, 5),), ((2, 3, 3),)),
  *same("unfold", lambda x: x.unfold(1, 3, 2), None, ((2, 9),)),
  *same("split", lambda x: x.split(2, 1)[2], None, ((2, 5),)),
  *same("chunk", lambda x: x.chunk(3, 1)[1], None, ((2, 7),)),
  *same("cat", lambda x, y: x.cat(y, dim=1), lambda x, y: torch.cat([x, y], 1), ((2, 3), (2, 4)), ((2, 0), (2, 1))),
  *same("stack", lambda x, y: x.stack(y, dim=1), lambda x, y: torch.stack([x, y], 1), ((2, 3), (2, 3))),
  *same("pad", lambda x: x.pad((1, 2, 0, 3), value=0.5), lambda x: F.pad(x, (1, 2, 0, 3), value=0.5), ((2, 3),)),
  *same("pad_cut", lambda x: x.pad((-1, 2)), lambda x: F.pad(x, (-1, 2)), ((2, 3),)),
  *same(
    "pad_reflect", lambda x: x.pad((1, 2), mode="reflect"), lambda x: F.pad(x, (1, 2), mode="reflect"), ((2, 3, 4),)
  ),
  *same(
    "pad_replicate",
    lambda x: x.pad((1, 2), mode="replicate"),
    lambda x: F.pad(x, (1, 2), mode="replicate"),
    ((2, 3, 4),),
  ),
  *same(
    "pad_circular", lambda x: x.pad((1, 2), mode="circular"), lambda x: F.pad(x, (1, 2), mode="circular"), ((2, 3, 4),)
  ),
  *same("meshgrid", lambda x, y: x.meshgrid(y)[1], lambda x, y: torch.meshgrid(x, y, indexing="ij")[1], ((3,), (4,))),
]

CONTRACTIONS = [
  *same(
    "matmul",
    lambda x, y: x @ y,
    None,
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 3)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((1, 1), (1, 1)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((65, 33), (33, 17)),
  ),
  *same("linear", lambda x, w, b: x.linear(w.transpose(), b), F.linear, ((3, 4), (5, 4), (5,))),
  *same(
    "einsum",
    lambda x, y: Tensor.einsum("bij,bjk->bki", x, y),
    lambda x, y: torch.einsum("bij,bjk->bki", x, y),
    ((2, 3, 4), (2, 4, 5)),
  ),
  *same("einsum_trace", lambda x: Tensor.einsum("ii->i", x), lambda x: torch.einsum("ii->i", x), ((4, 4),)),
  *same(
    "einsum_dots",
    lambda x, y: Tensor.einsum("...ij,jk->...ik", x, y),
    lambda x, y: torch.einsum("...ij,jk->...ik", x, y),
    ((2, 3, 4), (4, 5)),
  ),
  *same(
    "einsum_implicit",
    lambda x, y: Tensor.einsum("ij,jk", x, y),
    lambda x, y: torch.einsum("ij,jk", x, y),
    ((3, 4), (4, 5)),
  ),
  *same(
    "attention",
    lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 4)),
  ),
]


def conv(**kw: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
  return (lambda x, w, b=None: x.conv2d(w, b, **kw)), (lambda x, w, b=None: F.conv2d(x, w, b, **kw))


def transposed(**kw: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
  return (lambda x, w, b=None: x.conv_transpose2d(w, b, **kw)), (lambda x, w, b=None: F.conv_transpose2d(x, w, b, **kw))


WINDOWS = [
  *same("conv", *conv(), ((2, 3, 7, 6), (4, 3, 3, 3), (4,)), ((1, 1, 3, 3), (1, 1, 1, 1)), tolerance=2e-4),
  *same("conv_pad", *conv(padding=1), ((2, 3, 7, 6), (4, 3, 3, 3)), ((1, 2, 5, 5), (3, 2, 5, 1)), tolerance=2e-4),
  *same("conv_stride", *conv(stride=2, padding=(1, 2)), ((2, 3, 7, 6), (4, 3, 3, 2)), tolerance=2e-4),
  *same("conv_stride3", *conv(stride=(3, 4)), ((1, 2, 9, 9), (2, 2, 2, 2)), tolerance=2e-4),
  *same("conv_dilation", *conv(dilation=(2, 1), padding=2), ((1, 2, 7, 7), (3, 2, 3, 2)), tolerance=2e-4),
  *same("conv_groups", *conv(groups=2, padding=1), ((2, 4, 5, 5), (6, 2, 3, 3), (6,)), tolerance=2e-4),
  *same("conv_depthwise", *conv(groups=4, padding=1, stride=2), ((2, 4, 5, 5), (4, 1, 3, 3)), tolerance=2e-4),
  *same(
    "conv1d",
    lambda x, w: x.conv2d(w, stride=2),
    lambda x, w: F.conv1d(x, w, stride=2),
    ((2, 3, 11), (4, 3, 4)),
    tolerance=2e-4,
  ),
  *same(
    "conv3d",
    lambda x, w: x.conv2d(w, padding=1),
    lambda x, w: F.conv3d(x, w, padding=1),
    ((1, 2, 4, 3, 5), (2, 2, 3, 2, 3)),
    tolerance=2e-4,
  ),
  *same("conv_transpose", *transposed(), ((2, 3, 5, 4), (3, 4, 3, 3), (4,)), tolerance=2e-4),
  *same(
    "conv_transpose_stride",
    *transposed(stride=2, padding=1, output_padding=1),
    ((2, 3, 4, 3), (3, 2, 3, 3)),
    tolerance=2e-4,
  ),
  *same(
    "conv_transpose_groups",
    *transposed(groups=2, dilation=2, stride=(1, 3)),
    ((1, 4, 3, 3), (4, 2, 2, 2)),
    tolerance=2e-4,
  ),
  *same("max_pool", lambda x: x.max_pool2d((2, 2)), lambda x: F.max_pool2d(x, 2), ((2, 3, 6, 7),)),
  *same(
    "max_pool3",
    lambda x: x.max_pool2d((3, 2), stride=1, padding=1),
    lambda x: F.max_pool2d(x, (3, 2), 1, 1),
    ((2, 3, 6, 7),),
  ),
  *same(
    "max_pool_dilated",
    lambda x: x.max_pool2d(2, stride=2, dilation=2),
    lambda x: F.max_pool2d(x, 2, 2, 0, 2),
    ((1, 2, 7, 7),),
  ),
  *same(
    "max_pool_ceil",
    lambda x: x.max_pool2d(3, stride=2, ceil_mode=True),
    lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    ((1, 2, 6, 8),),
  ),
  *same(
    "max_pool_at",
    lambda x: x.max_pool2d(3, stride=2, padding=1, return_indices=True)[1],
    lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True)[1],
    ((1, 2, 6, 8),),
    grad=False,
  ),
  *same("avg_pool", lambda x: x.avg_pool2d(2), lambda x: F.avg_pool2d(x, 2), ((2, 3, 6, 7),)),
  *same(
    "avg_pool_pad", lambda x: x.avg_pool2d(3, stride=2, padding=1), lambda x: F.avg_pool2d(x, 3, 2, 1), ((2, 3, 6, 7),)
  ),
  *same(
    "avg_pool_inner",
    lambda x: x.avg_pool2d(3, stride=2, padding=1, count_include_pad=False),
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    ((2, 3, 6, 7),),
  ),
  *same(
    "avg_pool_ceil",
    lambda x: x.avg_pool2d(3, stride=2, padding=1, ceil_mode=True),
    lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    ((1, 2, 6, 8),),
  ),
  *same(
    "unpool",
    lambda x: x.max_pool2d(2, return_indices=True)[0].max_unpool2d(x.max_pool2d(2, return_indices=True)[1], 2),
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    ((1, 2, 4, 6),),
  ),
  *same(
    "interpolate", lambda x: x.interpolate((5, 9)), lambda x: F.interpolate(x, (5, 9), mode="bilinear"), ((1, 2, 4, 6),)
  ),
  *same(
    "interpolate_corners",
    lambda x: x.interpolate((7, 3), align_corners=True),
    lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=True),
    ((1, 2, 4, 6),),
  ),
  *same(
    "interpolate_nearest",
    lambda x: x.interpolate((7, 3), mode="nearest"),
    lambda x: F.interpolate(x, (7, 3), mode="nearest"),
    ((1, 2, 4, 6),),
  ),
  *same(
    "interpolate_exact",
    lambda x: x.interpolate((7, 3), mode="nearest-exact"),
    lambda x: F.interpolate(x, (7, 3), mode="nearest-exact"),
    ((1, 2, 4, 6),),
  ),
]


def index(*values: Any) -> tuple[Any, Any]:
  """An index for us and for PyTorch."""
  return tuple(Tensor(v) if isinstance(v, list) else v for v in values), tuple(
    torch.tensor(v) if isinstance(v, list) else v for v in values
  )


KEYS: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
  ("int", (1,), (3, 4)),
  ("neg", (-1, 2), (3, 4)),
  ("slice", (slice(1, 3),), (4, 4)),
  ("stop", (slice(None, -1), slice(2, None)), (3, 4)),
  ("step", (slice(None, None, 2), slice(1, None, 3)), (5, 8)),
  ("none", (None, slice(None), None), (3, 4)),
  ("dots", (..., 0), (2, 3, 4)),
  ("empty", (slice(2, 2),), (3, 4)),
  ("tensor", ([2, 0, -1],), (3, 4)),
  ("tensor_2d", (slice(None), [[0, 3], [1, 1]]), (3, 4)),
  ("two", ([0, 2, 1], [1, 1, 3]), (3, 4)),
  ("apart", ([0, 1], slice(None), [2, 3]), (3, 5, 4)),
  ("mixed", (slice(1, None), [0, 2], None, 1), (3, 4, 5)),
  ("broadcast", ([[0], [2]], [1, 3]), (3, 4)),
  ("middle", (slice(None), [1, 0], [2, 2]), (2, 3, 4)),
]
INDEXING = [
  *(
    Row(f"getitem-{name}", lambda x, key=key: x[index(*key)[0]], lambda x, key=key: x[index(*key)[1]], (shape,))
    for name, key, shape in KEYS
  ),
  *same(
    "gather",
    lambda x: x.gather(1, Tensor([[0, 2], [1, 1]])),
    lambda x: x.gather(1, torch.tensor([[0, 2], [1, 1]])),
    ((3, 4),),
  ),
  *same(
    "scatter",
    lambda x, y: x.scatter(0, Tensor([[0, 2, 1]]), y),
    lambda x, y: x.scatter(0, torch.tensor([[0, 2, 1]]), y),
    ((3, 4), (1, 3)),
  ),
  *same(
    "scatter_add",
    lambda x, y: x.scatter(1, Tensor([[0, 0, 1]]), y, reduce="add"),
    lambda x, y: x.scatter(1, torch.tensor([[0, 0, 1]]), y, reduce="add"),
    ((3, 4), (2, 3)),
    grad=False,
  ),
  *(
    r
    for how in ("sum", "prod", "mean", "amax", "amin")
    for keep in (True, False)
    for r in same(
      f"scatter_{how}_{keep}",
      lambda x, y, how=how, keep=keep: x.scatter_reduce(1, Tensor([[0, 0, 1], [3, 3, 3]]), y, how, keep),
      lambda x, y, how=how, keep=keep: x.scatter_reduce(
        1, torch.tensor([[0, 0, 1], [3, 3, 3]]), y, how, include_self=keep
      ),
      ((3, 4), (2, 3)),
      grad=False,
    )
  ),
  *same("masked_select", lambda x: x.masked_select(x > 0), None, ((3, 4),)),
  *same("masked_fill", lambda x: x.masked_fill(x > 0, 3.0), None, ((3, 4),)),
  *same("nonzero", lambda x: (x > 0).nonzero(), None, ((3, 4),), ((5,),), grad=False),
]

LABELS = [[2, 0, 1, -1], [2, 0, 1, 3]]
LOSSES = [
  *same(
    "cross_entropy",
    lambda x: x.cross_entropy(Tensor(LABELS[1]), label_smoothing=0.1),
    lambda x: F.cross_entropy(x, torch.tensor(LABELS[1]), label_smoothing=0.1),
    ((4, 5),),
  ),
  *same(
    "cross_entropy_2d",
    lambda x: x.cross_entropy(Tensor([[0, 1, 2]]), reduction="none"),
    lambda x: F.cross_entropy(x, torch.tensor([[0, 1, 2]]), reduction="none"),
    ((1, 4, 3),),
  ),
  *same(
    "cross_entropy_soft",
    lambda x, y: x.cross_entropy(y.softmax(1)),
    lambda x, y: F.cross_entropy(x, y.softmax(1)),
    ((4, 5), (4, 5)),
  ),
  *same(
    "sparse",
    lambda x: x.sparse_categorical_crossentropy(Tensor(LABELS[0])),
    lambda x: F.cross_entropy(x, torch.tensor(LABELS[0]), ignore_index=-1),
    ((4, 5),),
  ),
  *same(
    "nll",
    lambda x, w: x.log_softmax(1).nll_loss(Tensor(LABELS[1]), w.detach().abs(), ignore_index=3),
    lambda x, w: F.nll_loss(x.log_softmax(1), torch.tensor(LABELS[1]), w.detach().abs(), ignore_index=3),
    ((4, 5), (5,)),
  ),
  *same(
    "bce",
    lambda x, y: x.sigmoid().binary_crossentropy(y.sigmoid()),
    lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    ((4, 5), (4, 5)),
    grad=False,
  ),
  *same(
    "bce_logits",
    lambda x, y: x.binary_crossentropy_logits(y.sigmoid(), pos_weight=Tensor([2.0])),
    lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=torch.tensor([2.0])),
    ((4, 5), (4, 5)),
  ),
]

ROWS = [*UNARY, *ACTIVATIONS, *BINARY, *REDUCTIONS, *MOVEMENT, *CONTRACTIONS, *WINDOWS, *INDEXING, *LOSSES]


def others_alike(row: Row) -> bool:
  """Whether shapes that all operators of two operands share are tried with addition."""
  return row in BINARY and row.shapes in (PAIRS[2], PAIRS[5]) and not row.name.startswith("add")


@pytest.mark.parametrize(
  "row", [pytest.param(row, id=row.name, marks=[pytest.mark.nightly] if others_alike(row) else []) for row in ROWS]
)
def test_forward_and_backward(row: Row) -> None:
  check_forward_and_backward(row)


SPECIAL = [
  0.0,
  -0.0,
  1.0,
  -1.0,
  0.5,
  -0.5,
  1.5,
  2.5,
  -2.5,
  math.inf,
  -math.inf,
  math.nan,
  1e-30,
  -1e-30,
  1e30,
  100.0,
  -100.0,
]
AT_EDGES = (
  "abs exp exp2 log log2 log10 sqrt rsqrt reciprocal square tanh sinh cosh asin acos atan asinh acosh atanh erf floor "
  "ceil trunc round isnan isinf isfinite relu sigmoid"
).split()


@pytest.mark.parametrize("name", AT_EDGES)
def test_special_values(name: str) -> None:
  ours, theirs = getattr(Tensor(SPECIAL), name)(), getattr(torch.tensor(SPECIAL), name)()
  np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "maximum", "minimum", "pow", "fmod", "eq", "lt", "le"])
def test_special_pairs(name: str) -> None:
  left, right = (m.flatten() for m in np.meshgrid(*[np.array(SPECIAL, dtype=np.float32)] * 2))
  if name == "fmod":  # exact while the quotient is
    with np.errstate(all="ignore"):
      fine = ~(np.abs(left / right) > 2**24) | (right == 0) | np.isinf(left)
    left, right = left[fine], right[fine]
  op = {"eq": "__eq__", "lt": "__lt__", "le": "__le__"}.get(name, name)
  ours = getattr(Tensor(left), op)(Tensor(right))
  theirs = getattr(torch.tensor(left), op)(torch.tensor(right))
  np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]


@pytest.mark.parametrize("name", INTEGERS)
def test_integer_arithmetic(name: str) -> None:
  rng = np.random.default_rng(2)
  low = 0 if name == "uint8" else -9
  a, b = rng.integers(low, 10, (2, 40)).astype(name)
  b[b == 0] = 3
  x, y, p, q = Tensor(a), Tensor(b), torch.tensor(a), torch.tensor(b)
  pairs = {
    "+": (x + y, p + q),
    "-": (x - y, p - q),
    "*": (x * y, p * q),
    "//": (x // y, p // q),
    "%": (x % y, p % q),
    "/": (x / y, p / q),
    "trunc": (x.div(y, rounding_mode="trunc"), p.div(q, rounding_mode="trunc")),
    "&": (x & y, p & q),
    "|": (x | y, p | q),
    "^": (x ^ y, p ^ q),
    "~": (~x, ~p),
    "max": (x.maximum(y), p.maximum(q)),
    "min": (x.minimum(y), p.minimum(q)),
    "<": (x < y, p < q),
    "<=": (x <= y, p <= q),
    "<<": (x << 2, p << 2),
    ">>": (x >> 1, p >> 1),
    "fmod": (x.fmod(y), p.fmod(q)),
    "pow": (x ** (y * 0 + 3), p ** (q * 0 + 3)),
    "min_all": (x.min(), p.min()),
    "max_all": (x.max(), p.max()),
  }
  for op, (got, expected) in pairs.items():
    np.testing.assert_array_equal(got.numpy().astype(np.float64), expected.numpy().astype(np.float64), err_msg=op)
    assert got.dtype.name == str(expected.dtype).removeprefix("torch."), op


@pytest.mark.parametrize("target", ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("source", ["bool", *INTEGERS, "float16", "bfloat16", "float32", "float64"])
def test_cast(source: str, target: str) -> None:
  values = [0.0, 1.0, 2.7, 100.4] if source == "uint8" else [0.0, 1.0, -1.0, 2.7, -2.7, 100.4]
  if target == "uint8" or (source == "bool"):
    values = [0.0, 1.0, 2.7, 100.4]
  x = Tensor(values).cast(source).cast(target)
  y = torch.tensor(values).to(getattr(torch, source)).to(getattr(torch, target))
  assert x.dtype is getattr(dtypes, target)
  np.testing.assert_array_equal(x.cast(dtypes.float64).numpy(), y.to(torch.float64).numpy())


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_other_floats(name: str) -> None:
  a = np.random.default_rng(3).standard_normal((4, 6))
  dtype = getattr(torch, name)
  x, p = Tensor(a.tolist(), dtype=name, requires_grad=True), torch.tensor(a).to(dtype).requires_grad_()
  # what Python floats become on the way differs by a rounding for the narrow types
  tolerance = {"float16": 1e-2, "bfloat16": 6e-2, "float64": 1e-12}[name]
  functions: list[Callable[[Any], Any]] = [
    lambda t: t.exp().sum(1),
    lambda t: (t @ t.T).tanh(),
    lambda t: t.softmax(1),
    lambda t: t.sigmoid() * t.sin(),
  ]
  for f in functions:
    got, expected = f(x), f(p)
    assert got.dtype.name == name
    np.testing.assert_allclose(
      got.cast(dtypes.float64).numpy(), expected.detach().to(torch.float64).numpy(), rtol=tolerance, atol=tolerance
    )
    x.grad = p.grad = None
    got.sum().backward()
    expected.sum().backward()
    assert x.grad is not None and x.grad.dtype.name == name
    np.testing.assert_allclose(
      x.grad.cast(dtypes.float64).numpy(), p.grad.to(torch.float64).numpy(), rtol=4 * tolerance, atol=4 * tolerance
    )
