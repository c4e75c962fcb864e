"""Functions of tensors become models, which compute the same: here, and in the reference of `onnx`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tiny_onnx
from tiny_onnx import ModelError
from tiny_tensor import Tensor, dtypes

W = np.random.default_rng(1).standard_normal((4, 3, 3, 3)).astype(np.float32)
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
  "mlp": (lambda x: (x @ Tensor(W.reshape(12, 9)).T + 1).relu().softmax(), [(5, 9)]),
  "attention": (lambda q, k: q.scaled_dot_product_attention(k, k), [(2, 2, 4, 8), (2, 2, 5, 8)]),
  "convolution": (lambda x: x.conv2d(Tensor(W), padding=1).max_pool2d(2), [(2, 3, 6, 6)]),
  "functions": (lambda x: x.tanh() + x.sigmoid() * x.erf() - (x * x + 1).log2() + x.exp2() + x.trunc(), [(3, 4)]),
  "movement": (lambda x: x.flip(1)[1:, ::2].pad(((1, 0), (0, 2))).transpose(0, 1).repeat(2, 1), [(4, 6)]),
  "integers": (lambda x: (x * 10).cast(dtypes.int32) // 3 + (x * 10).cast(dtypes.int32) % 4, [(3, 4)]),
  "choices": (lambda x: x.argmax(1).cast(dtypes.float32) + (x > 0).any(1).where(x.max(1), x.min(1)), [(3, 4)]),
  "indexing": (lambda x: x[Tensor([2, 0])].cumsum(1) * x[:2], [(3, 4)]),
  "norm": (lambda x: x.layernorm() + x.std(0), [(3, 4)]),
  "several": (lambda x, y: {"sum": x + y, "same": x, "outer": x.unsqueeze(1) * y.unsqueeze(2)}, [(3, 4), (3, 4)]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_exported_computes_the_same(name: str, tmp_path: Path) -> None:
  function, shapes = FUNCTIONS[name]
  inputs = {
    f"x{i}": Tensor(np.random.default_rng(i).standard_normal(s).astype(np.float32)) for i, s in enumerate(shapes)
  }
  tiny_onnx.export(function, inputs, tmp_path / "m.onnx")
  made = function(*inputs.values())
  expected = made if isinstance(made, dict) else {"output": made}
  found = tiny_onnx.load(tmp_path / "m.onnx")(inputs)
  arrays = {n: x.numpy() for n, x in inputs.items()}
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    theirs = ReferenceEvaluator(onnx.load(tmp_path / "m.onnx")).run(None, arrays)
  assert list(found) == list(expected)
  for (name, mine), other in zip(found.items(), theirs):
    wanted = expected[name].numpy()
    assert mine.dtype == expected[name].dtype and mine.shape == expected[name].shape
    np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other, wanted, rtol=1e-5, atol=1e-6)


def test_products_are_einsums_and_nothing_is_expanded() -> None:
  x = {"x": Tensor.ones(5, 9), "y": Tensor.ones(9, 4)}
  model = tiny_onnx.export(lambda x, y: x @ y + 1, x)
  ops = [n.op_type for n in model.graph.node]
  assert ops.count("Einsum") == 1 and "ReduceSum" not in ops
  assert tiny_onnx.load(model)(x)["output"].tolist() == [[10] * 4] * 5


def test_what_onnx_has_no_operator_for_is_named() -> None:
  with pytest.raises(ModelError, match="THREEFRY"):
    tiny_onnx.export(lambda x: x + Tensor.rand(3), {"x": Tensor.ones(3)})
  with pytest.raises(ModelError, match="as both"):
    tiny_onnx.export(lambda x: x + 1, {"output": Tensor.ones(3)})
