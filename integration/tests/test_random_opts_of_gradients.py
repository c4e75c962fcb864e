"""Kernels of random forward and backward passes compute the same with any Opts, without any one of the optional passes,
and in vectors of any width.

The kernels of the operators that have the most to do with windows, padding and nested sums are those in which Opts and
passes meet in ways that kernels written for a test do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from codegen_machine import Machine, host_renderer
from codegen_opts import before_optimising, opts_for
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tiny_codegen import LLVMRenderer, build_program, cpu_target
from tiny_codegen.pipeline import OPTIONAL
from tiny_runtime import run
from tiny_runtime.buffer import buffer_of
from tiny_tensor import Tensor
from tiny_uop import Ops, UOp, print_uop

Array = np.ndarray[Any, Any]
Sample = tuple[list[Tensor], Callable[..., Tensor]]


@cache
def renderers() -> dict[int, LLVMRenderer]:
  """Renderers by the bits of a vector: those of x86-64 that this machine can run, else its own."""
  own, features = host_renderer(), llvm.get_host_cpu_features()
  found = {own.target.vector_bits: own}
  if llvm.get_default_triple().startswith("x86_64"):
    narrower = {128: [], 256: ["avx", "avx2", "fma", "f16c"]}
    for bits, needed in narrower.items():
      if bits not in found and all(features.get(name) for name in needed):
        found[bits] = LLVMRenderer(cpu_target("x86_64", "", [f"+{name}" for name in needed]))
  return found


def tensor(draw: st.DrawFn, *shape: int) -> Tensor:
  random = np.random.default_rng(draw(st.integers(0, 99)))
  return Tensor(random.standard_normal(shape).astype(np.float32), requires_grad=True).realize()


def image(draw: st.DrawFn, least: int = 4) -> Tensor:
  sides = [draw(st.integers(least, 11)) for _ in range(2)]
  return tensor(draw, draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sides)


def pools(draw: st.DrawFn) -> Sample:
  size, stride = draw(st.integers(2, 4)), draw(st.integers(1, 3))
  padding, ceil, include = draw(st.integers(0, size // 2)), draw(st.booleans()), draw(st.booleans())
  if draw(st.booleans()):
    return [image(draw)], lambda x: x.max_pool2d(size, stride, padding=padding, ceil_mode=ceil)
  return [image(draw)], lambda x: x.avg_pool2d(size, stride, padding=padding, ceil_mode=ceil, count_include_pad=include)


def convolutions(draw: st.DrawFn) -> Sample:
  x, groups = image(draw, 5), draw(st.sampled_from([1, 1, 2]))
  channels, size = int(x.shape[1]), draw(st.integers(1, 3))
  x = x.cat(x, dim=1).detach().realize().requires_grad_() if groups == 2 else x
  weight = tensor(draw, groups * draw(st.integers(1, 4)), channels, size, size)
  options = {"padding": draw(st.integers(0, 2)), "stride": draw(st.integers(1, 3)), "dilation": draw(st.integers(1, 2))}
  return [x, weight], lambda x, w: x.conv2d(w, groups=groups, **options).gelu()


def transposed(draw: st.DrawFn) -> Sample:
  x, size = image(draw), draw(st.integers(1, 3))
  weight, stride = tensor(draw, int(x.shape[1]), draw(st.integers(1, 3)), size, size), draw(st.integers(1, 3))
  return [x, weight], lambda x, w: x.conv_transpose2d(w, stride=stride, padding=min(1, size - 1))


def products(draw: st.DrawFn) -> Sample:
  m, k, n = (draw(st.integers(1, 20)) for _ in range(3))
  masked = draw(st.booleans())
  return [tensor(draw, m, k), tensor(draw, k, n)], lambda a, b: ((a @ b).tril() if masked else a @ b).softmax(-1)


def norms(draw: st.DrawFn) -> Sample:
  x, axis = image(draw), draw(st.sampled_from([1, -1, (2, 3), (0, 2, 3)]))
  f = draw(st.sampled_from(["layernorm", "var", "logsumexp", "log_softmax", "softmax"]))
  single = axis if isinstance(axis, int) else -1
  return [x], lambda x: getattr(x, f)(axis if f in ("layernorm", "var") else single)


def scans(draw: st.DrawFn) -> Sample:
  axis, f = draw(st.integers(0, 3)), draw(st.sampled_from(["cumsum", "cumprod", "cummax", "logcumsumexp"]))
  return [image(draw)], lambda x: next(iter(y)) if isinstance(y := getattr(x, f)(axis), tuple) else y


def frames(draw: st.DrawFn) -> Sample:
  around = [draw(st.integers(-1, 3)) for _ in range(4)]
  mode = draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
  around = [max(a, 0) for a in around] if mode != "constant" else around
  return [image(draw)], lambda x: x.pad(tuple(around), mode=mode).square()


def resized(draw: st.DrawFn) -> Sample:
  size = (draw(st.integers(2, 14)), draw(st.integers(2, 14)))
  mode = draw(st.sampled_from(["nearest", "linear", "nearest-exact"]))
  return [image(draw)], lambda x: x.interpolate(size, mode=mode)


def picked(draw: st.DrawFn) -> Sample:
  x = tensor(draw, draw(st.integers(2, 9)), draw(st.integers(1, 20)))
  index = Tensor([draw(st.integers(0, int(x.shape[0]) - 1)) for _ in range(draw(st.integers(1, 12)))])
  return [x], lambda x: x[index].square() * x.sum(0)


def pieces(draw: st.DrawFn) -> Sample:
  axis, by, step = draw(st.integers(0, 3)), draw(st.integers(-3, 3)), draw(st.integers(1, 3))
  return [image(draw)], lambda x: x.roll(by, axis).cat(x.flip(axis), dim=axis)[..., ::step].exp()


FAMILIES = (pools, convolutions, transposed, products, norms, scans, frames, resized, picked, pieces)


@st.composite
def kernels(draw: st.DrawFn) -> list[UOp]:
  """The schedule of a sample's result and gradients."""
  inputs, f = draw(st.sampled_from(FAMILIES))(draw)
  result = f(*inputs)
  gradients = (result * Tensor.arange(int(result.numel())).reshape(result.shape).float().sin()).sum().gradient(*inputs)
  return list(result.schedule_linear(*gradients).src)


def steps(calls: list[UOp]) -> Iterator[tuple[UOp, list[Array]]]:
  """Each kernel of a schedule with what its buffers hold before it runs."""
  for call in calls:
    if call.op is Ops.CALL and call.src[0].op is Ops.SINK:
      kernel = call.src[0]
      sizes = {u.arg: u.dtype for u in kernel.toposort if u.op is Ops.PARAM}
      arrays: list[Array] = []
      for slot, argument in enumerate(call.src[1:]):
        dtype: Any = sizes[slot]
        buffer = buffer_of(argument)
        held = bytes(buffer.look()) if buffer.is_written() else b"M" * (dtype.size * dtype.base.itemsize)
        arrays.append(np.frombuffer(held, dtype.base.name)[: dtype.size])
      yield kernel, arrays
    run(UOp(Ops.LINEAR, src=(call,)))


def computed(kernel: UOp, arrays: list[Array], renderer: LLVMRenderer, *how: Any, parts: int = 1) -> list[Array]:
  """What the buffers hold after the kernel has run under these Opts (None: those that heuristics choose)."""
  copies = [a.copy() for a in arrays]
  Machine().call(build_program(kernel, renderer, *how), copies, {}, parts)
  return copies


def check(data: st.DataObject, calls: list[UOp]) -> None:
  for kernel, arrays in steps(calls):
    expected = computed(kernel, arrays, host_renderer(), (), OPTIONAL)
    renderer = renderers()[data.draw(st.sampled_from(sorted(renderers())), label="bits of a vector")]
    skip = data.draw(st.sets(st.sampled_from(sorted(OPTIONAL)), max_size=1), label="without the pass")
    root = before_optimising(kernel, renderer.target, skip)
    opts = data.draw(st.none() | opts_for(root, renderer.target), label="Opts")
    parts = data.draw(st.integers(1, 3), label="parts")
    note(print_uop(kernel))
    for found, right in zip(computed(kernel, arrays, renderer, opts, skip, parts=parts), expected, strict=True):
      np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-5)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kernels_of_gradients_under_any_opts(data: st.DataObject) -> None:
  check(data, data.draw(kernels()))
