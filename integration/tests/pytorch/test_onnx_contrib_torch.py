"""com.microsoft's operators against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tiny_onnx
from tiny_tensor import Context

onnxruntime: Any = pytest.importorskip("onnxruntime")  # only in the environment `oracle`
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
  return RNG.standard_normal(shape).astype(np.float32)


def both(op: str, inputs: dict[str, Any], outputs: int, attributes: dict[str, Any]) -> tuple[list[Any], list[Any]]:
  """(ours, onnxruntime's) outputs of one node; an input that is None is left out."""
  given = {name: array for name, array in inputs.items() if array is not None}
  node = helper.make_node(
    op, [name if array is not None else "" for name, array in inputs.items()], [f"out{i}" for i in range(outputs)],
    domain="com.microsoft", **attributes,
  )  # fmt: skip
  infos = [
    helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), list(a.shape)) for n, a in given.items()
  ]
  outs = [helper.make_empty_tensor_value_info(f"out{i}") for i in range(outputs)]
  opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
  model = helper.make_model(helper.make_graph([node], "g", infos, outs), opset_imports=opsets, ir_version=9)
  session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
  expected = session.run(None, given)
  with Context(DEVICE="REF"):
    return list(tiny_onnx.load(model, check=False).numpy(given).values()), list(expected)


B, S, H, W = 2, 5, 4, 16
PACKED = RNG.integers(0, 256, (24, 2, 16)).astype(np.uint8)
ROTATE = {"cos": np.cos(floats(8, 2)), "sin": np.sin(floats(8, 2))}

CASES: dict[str, tuple[str, dict[str, Any], int, dict[str, Any]]] = {
  "fused_matmul": ("FusedMatMul", {"a": floats(3, 4, 2), "b": floats(3, 4, 5)}, 1, {"transA": 1, "alpha": 0.5}),
  "fused_conv": (
    "FusedConv",
    {"x": floats(1, 3, 6, 6), "w": floats(4, 3, 3, 3), "b": floats(4)},
    1,
    {"activation": "Relu", "pads": [1, 1, 1, 1]},
  ),
  "skip_layer_norm": (
    "SkipLayerNormalization",
    {"x": floats(B, S, W), "s": floats(B, S, W), "g": floats(W), "b": floats(W), "c": floats(W)},
    1,
    {"epsilon": 1e-5},
  ),
  "skip_rms_norm": (
    "SkipSimplifiedLayerNormalization",
    {"x": floats(B, S, W), "s": floats(B, S, W), "g": floats(W)},
    1,
    {"epsilon": 1e-5},
  ),
  "gelu": ("Gelu", {"x": floats(3, 4)}, 1, {}),
  "fast_gelu": ("FastGelu", {"x": floats(3, 4), "b": floats(4)}, 1, {}),
  "bias_gelu": ("BiasGelu", {"x": floats(3, 4), "b": floats(4)}, 1, {}),
  "quick_gelu": ("QuickGelu", {"x": floats(3, 4)}, 1, {"alpha": 1.5}),
  "multi_head": (
    "MultiHeadAttention",
    {"q": floats(B, S, W), "k": floats(B, 7, W), "v": floats(B, 7, W)},
    1,
    {"num_heads": H},
  ),
  "multi_head_masked": (
    "MultiHeadAttention",
    {
      "q": floats(B, S, W),
      "k": floats(B, S, W),
      "v": floats(B, S, W),
      "b": floats(3 * W),
      "m": np.array([3, 5], np.int32),
    },
    1,
    {"num_heads": H},
  ),
  "attention": (
    "Attention",
    {"x": floats(B, S, W), "w": floats(W, 3 * W), "b": floats(3 * W)},
    1,
    {"num_heads": H, "unidirectional": 1},
  ),
  "attention_mask": (
    "Attention",
    {
      "x": floats(B, S, W),
      "w": floats(W, 3 * W),
      "b": floats(3 * W),
      "m": np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32),
    },
    1,
    {"num_heads": H},
  ),
  "rotary": (
    "RotaryEmbedding",
    {"x": floats(B, S, W), "p": np.tile(np.arange(S), (B, 1)), **ROTATE},
    1,
    {},
  ),
  "rotary_interleaved": (
    "RotaryEmbedding",
    {"x": floats(B, S, W), "p": np.tile(np.arange(S), (B, 1)), **ROTATE},
    1,
    {"interleaved": 1},
  ),
  "group_query": (
    "GroupQueryAttention",
    {
      "q": floats(B, S, 32),
      "k": floats(B, S, 16),
      "v": floats(B, S, 16),
      "pk": None,
      "pv": None,
      "l": np.array([S - 1, S - 1], np.int32),
      "t": np.array(S, np.int32),
    },
    3,
    {"num_heads": H, "kv_num_heads": 2},
  ),
  "group_query_cached": (
    "GroupQueryAttention",
    {
      "q": floats(B, 1, 64),
      "k": floats(B, 1, 32),
      "v": floats(B, 1, 32),
      "pk": floats(B, 2, 6, 16),
      "pv": floats(B, 2, 6, 16),
      "l": np.array([6, 6], np.int32),
      "t": np.array(7, np.int32),
      "cos": np.cos(floats(8, 8)),
      "sin": np.sin(floats(8, 8)),
    },
    3,
    {"num_heads": H, "kv_num_heads": 2, "do_rotary": 1},
  ),
  "matmul_4_bits": (
    "MatMulNBits",
    {"x": floats(3, 64), "w": PACKED, "s": floats(48)},
    1,
    {"K": 64, "N": 24, "bits": 4, "block_size": 32},
  ),
  "matmul_4_bits_zeros": (
    "MatMulNBits",
    {"x": floats(3, 64), "w": PACKED, "s": floats(48), "z": RNG.integers(0, 256, 24).astype(np.uint8)},
    1,
    {"K": 64, "N": 24, "bits": 4, "block_size": 32},
  ),
  "dynamic_quantize": (
    "DynamicQuantizeMatMul",
    {
      "a": floats(3, 8),
      "b": RNG.integers(0, 255, (8, 4)).astype(np.uint8),
      "s": np.array([0.1], np.float32),
      "z": np.array([120], np.uint8),
    },
    1,
    {},
  ),
  "qlinear_add": (
    "QLinearAdd",
    {
      "a": RNG.integers(0, 255, (3, 8)).astype(np.uint8),
      "as": np.array(0.1, np.float32),
      "az": np.array(100, np.uint8),
      "b": RNG.integers(0, 255, (3, 8)).astype(np.uint8),
      "bs": np.array(0.2, np.float32),
      "bz": np.array(120, np.uint8),
      "s": np.array(0.3, np.float32),
      "z": np.array(128, np.uint8),
    },
    1,
    {},
  ),
}


@pytest.mark.parametrize("name", CASES)
def test_contrib_operators(name: str) -> None:
  ours, expected = both(*CASES[name])
  for a, b in zip(ours, expected):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.shape, b.shape)
    np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
