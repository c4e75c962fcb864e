"""Quantised operators of ONNX: their sums are done by dot products of bytes, and are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tiny_onnx
from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
from tiny_runtime import capture

FEATURES = ("+avx", "+avx2", "+fma", "+sse4.1", "+avx512f", "+avx512vl", "+avx512bw", "+avx512vnni")
RNG = np.random.default_rng(0)
U8, I8 = np.uint8, np.int8


def codes(dtype: Any, *shape: int) -> Any:
  info = np.iinfo(dtype)
  return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def model(op: str, inputs: dict[str, Any], given: str, out: int, **attributes: Any) -> tiny_onnx.Model:
  """A node whose inputs are constants, but for one."""
  x = inputs[given]
  kind = helper.np_dtype_to_tensor_dtype(x.dtype)
  graph = helper.make_graph(
    [helper.make_node(op, list(inputs), ["y"], **attributes)],
    "graph",
    [helper.make_tensor_value_info(given, kind, x.shape)],
    [helper.make_tensor_value_info("y", out, [None] * x.ndim)],
    [numpy_helper.from_array(value, name) for name, value in inputs.items() if name != given],
  )
  return tiny_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))


def text_of(run: Any) -> str:
  """The programs of a call, for a processor that has VPDPBUSD."""
  renderer = LLVMRenderer(cpu_target("x86_64-unknown-linux-gnu", "x86-64", FEATURES))
  with capture() as schedules:
    run()
  kernels = {call.src[0] for linear in schedules for call in linear.src}
  return "\n".join(str(compile_kernel(k, renderer).src[2].arg) for k in kernels if k.op.name == "SINK")


@pytest.mark.parametrize(("left", "right"), [(U8, I8), (U8, U8), (I8, I8), (I8, U8)])
@pytest.mark.parametrize("zeros", [(0, 0), (3, 0), (100, 7)])
def test_products_of_integers(left: Any, right: Any, zeros: tuple[int, int]) -> None:
  a, b = codes(left, 32, 64), codes(right, 64, 48)
  p, q = np.array(zeros[0], left), np.array(zeros[1], right)
  net = model("MatMulInteger", {"a": a, "b": b, "p": p, "q": q}, "a", TensorProto.INT32)
  expected = (a.astype(int) - int(p)) @ (b.astype(int) - int(q))
  text = text_of(lambda: net(a)["y"].realize())
  for _ in range(3):
    found = net.numpy(a)["y"]
    assert found.dtype == np.int32 and np.array_equal(found, expected)
  assert "vpdpbusd" in text


def convolved(x: Any, w: Any, pads: list[int], groups: int) -> Any:
  """A convolution of integers whose padding is 0."""
  padded = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
  windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))
  parts = zip(np.split(windows, groups, 1), np.split(w, groups))
  return np.concatenate([np.einsum("nchwij,ocij->nohw", a, b) for a, b in parts], 1)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 0, 1, 2]])
@pytest.mark.parametrize(("right", "zeros", "group"), [(I8, (0, 0), 1), (I8, (128, 0), 1), (U8, (7, 9), 2)])
def test_convolutions_of_integers(pads: list[int], right: Any, zeros: tuple[int, int], group: int) -> None:
  x, w = codes(U8, 1, 64, 14, 14), codes(right, 32, 64 // group, 3, 3)
  p, q = np.array(zeros[0], U8), np.array(zeros[1], right)
  inputs = {"x": x, "w": w, "p": p, "q": q}
  net = model("ConvInteger", inputs, "x", TensorProto.INT32, pads=pads, group=group)
  expected = convolved(x.astype(int) - int(p), w.astype(int) - int(q), pads, group)
  text = text_of(lambda: net(x)["y"].realize())
  for _ in range(3):
    assert np.array_equal(net.numpy(x)["y"], expected)
  assert "vpdpbusd" in text


def test_numbers_that_are_quantised_as_they_come() -> None:
  x, w = RNG.standard_normal((32, 64)).astype(np.float32), codes(I8, 64, 48)
  nodes = [
    helper.make_node("DynamicQuantizeLinear", ["x"], ["a", "scale", "zero"]),
    helper.make_node("MatMulInteger", ["a", "w", "zero"], ["y"]),
  ]
  graph = helper.make_graph(
    nodes,
    "graph",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
    [helper.make_tensor_value_info(n, k, s) for n, k, s in (("y", 6, [32, 48]), ("a", 2, [32, 64]), ("zero", 2, []))],
    [numpy_helper.from_array(w, "w")],
  )
  net = tiny_onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
  text = text_of(lambda: net(x)["y"].realize())
  found = net.numpy(x)
  assert np.array_equal(found["y"], (found["a"].astype(int) - int(found["zero"])) @ w.astype(int))
  assert "vpdpbusd" in text
