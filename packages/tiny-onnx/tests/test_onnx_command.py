"""`python -m tiny_onnx`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tiny_onnx.__main__ import main

TEXT = """<ir_version: 10, opset_import: ["": 21]>
g (float[N, 3] x, int64[2] s) => (float[A, B] y) { h = Relu(x)  y = Reshape(h, s) }"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
  onnx.save(onnx.parser.parse_model(TEXT), tmp_path / "m.onnx")
  np.savez(tmp_path / "in.npz", x=np.array([[1, -2, 3], [4, 5, -6]], np.float32), s=np.array([3, 2]))
  np.savez(tmp_path / "out.npz", y=np.array([[1, 0], [3, 4], [5, 0]], np.float32))
  np.savez(tmp_path / "wrong.npz", y=np.array([[1, 0], [3, 4], [5, 1]], np.float32))
  return tmp_path / "m.onnx"


def test_what_a_model_is(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  assert main([str(path)]) == 0
  shown = capsys.readouterr().out
  assert "x: float[N, 3]" in shown and "s: int64[2], read in each call" in shown
  assert "2 nodes: Relu 1, Reshape 1" in shown
  assert "operations and memory are not known, since a call with N = 1 fails" in shown, "what s is cannot be made up"
  assert "give other sizes with --size" in shown
  assert main([str(path), "--run", str(path.parent / "in.npz")]) == 0
  assert "a call: " in capsys.readouterr().out


def test_what_a_call_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  """Each of 10 · 4 results takes 3 products, 3 sums and a negation; two times as many floats are there at once."""
  text = """<ir_version: 10, opset_import: ["": 21]>
  g (float[N, 3] x) => (float[N, 4] y) <float[3, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12}>
  { h = MatMul(x, w)  y = Neg(h) }"""
  onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
  assert main([str(tmp_path / "m.onnx"), "--size", "N=10"]) == 0
  shown = capsys.readouterr().out
  assert "a call with N = 10: 280 OP, values of at most 320 B at the same time" in shown
  assert "weights: 48 B in 1 tensors" in shown


def test_unknown_operators_are_listed_all_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  nodes = [
    onnx.helper.make_node(op, [i], [o], name=i, domain=domain)
    for op, i, o, domain in (("Frob", "x", "a", "own"), ("Grok", "a", "b", "other"), ("Frob", "b", "y", "own"))
  ]
  ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
  opsets = [onnx.helper.make_opsetid(*pair) for pair in (("", 21), ("own", 3), ("other", 1))]
  graph = onnx.helper.make_graph(nodes, "g", ports[:1], ports[1:])
  onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), tmp_path / "m.onnx")
  assert main([str(tmp_path / "m.onnx")]) == 1
  shown = capsys.readouterr().err
  assert "own.Frob version 3: 2 nodes, x, b" in shown and "other.Grok version 1: 1 node, a" in shown


def test_runs_are_checked(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  there = path.parent
  run = [str(path), "--run", str(there / "in.npz")]
  assert (
    main([*run, "--check", str(there / "out.npz"), "--save", str(there / "new.npz"), "--time", "2", "--profile"]) == 0
  )
  assert "y: equal" in capsys.readouterr().out
  assert np.load(there / "new.npz")["y"].shape == (3, 2)
  assert main([*run, "--check", str(there / "wrong.npz")]) == 1
  assert "y: DIFFERENT, at most 1 apart" in capsys.readouterr().out


def test_what_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  (tmp_path / "m.onnx").write_bytes(b"no model")
  assert main([str(tmp_path / "m.onnx")]) == 1 and main([str(tmp_path / "none.onnx")]) == 1
  assert "no ONNX model" in capsys.readouterr().err
