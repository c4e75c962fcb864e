"""The backend suite of the package `onnx`: its cases, run one by one, against the table of exclusions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

import tiny_onnx
from tiny_tensor import Tensor

RANDOM = "draws numbers: the expected ones are those of a generator that the standard does not fix"
NOISE = "the expected values are rounding errors around 0 of one library, larger than the tolerance; ours are smaller"
HALF = "one unit of float16 is more than the tolerance; NumPy rounds at every step"

EXCLUDED: dict[str, str] = {
  **dict.fromkeys(
    ("bernoulli", "bernoulli_expanded", "bernoulli_double", "bernoulli_double_expanded", "bernoulli_seed",
     "bernoulli_seed_expanded"), RANDOM),
  **dict.fromkeys(("dft_inverse", "dft_inverse_opset19"), NOISE),
  **dict.fromkeys(("attention_4d_causal_fp16", "attention_4d_causal_fp16_expanded"), HALF),
}  # fmt: skip
"""Cases that fail, without their prefix `test_` → why. One that passes nevertheless is an error."""


@dataclass(frozen=True)
class Case:
  """A case of the suite: a model, and inputs with the outputs that are expected."""

  name: str
  kind: str
  model: onnx.ModelProto
  data: Any
  rtol: float
  atol: float

  def run(self) -> None:
    """Raises AssertionError for outputs of another number, shape, dtype or value."""
    Tensor.manual_seed(0)
    model = tiny_onnx.load(self.model, check=False, jit=False)
    for inputs, expected in self.data():
      found = [*model.numpy(*inputs).values()]
      compare(expected, found, self.rtol, self.atol)


def compare(expected: Any, found: Any, rtol: float, atol: float) -> None:
  """As the suite compares, and None with None."""
  if len(expected) == len(found) and any(e is None or isinstance(e, list) for e in expected):
    for e, f in zip(expected, found):
      if e is None:
        assert f is None, f
      else:
        compare(e, f, rtol, atol) if isinstance(e, list) else compare([e], [f], rtol, atol)
    return
  Runner.assert_similar_outputs(expected, found, rtol, atol)


def plain(value: Any) -> Any:
  """A value of the suite as arrays."""
  if isinstance(value, onnx.TensorProto):
    return numpy_helper.to_array(value)
  if isinstance(value, onnx.SequenceProto):
    return numpy_helper.to_list(value)
  if isinstance(value, onnx.OptionalProto):
    return numpy_helper.to_optional(value)
  return value


def read(path: Path, info: onnx.ValueInfoProto) -> Any:
  """A value from a file, of the type that the model declares."""
  kinds: dict[str, Any] = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
  proto = kinds.get(info.type.WhichOneof("value") or "", onnx.TensorProto)()
  proto.ParseFromString(path.read_bytes())
  return plain(proto)


def from_folder(folder: Path, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
  """Inputs and outputs that lie beside a model."""
  named = {t.name for t in model.graph.initializer}
  declared = [v for v in model.graph.input if v.name not in named]
  for data in sorted(folder.glob("test_data_set_*")):
    inputs = [
      read(data / f"input_{i}.pb", info) for i, info in enumerate(declared) if (data / f"input_{i}.pb").exists()
    ]
    yield inputs, [read(data / f"output_{i}.pb", info) for i, info in enumerate(model.graph.output)]


def from_light(path: Path, name: str, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
  """The suite's own inputs for the large models, whose weights are constants, and the outputs beside them."""
  named = {t.name for t in model.graph.initializer}
  inputs = [
    Runner.generate_dummy_data(v, seed=0, name=name, random=False) for v in model.graph.input if v.name not in named
  ]
  expected = sorted(path.parent.glob(f"{path.stem}_output_*.pb"))
  yield inputs, [read(p, info) for p, info in zip(expected, model.graph.output)]


@cache
def cases() -> dict[str, Case]:
  """All cases by name."""
  found: dict[str, Case] = {}
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for case in collect_testcases(None):
      data = [([plain(x) for x in i], [plain(x) for x in o]) for i, o in case.data_sets or []]
      found[case.name] = Case(
        case.name, "node", case.model or onnx.ModelProto(), lambda data=data: data, case.rtol, case.atol
      )
  for kind in ("simple", "pytorch-converted", "pytorch-operator", "real"):
    for case in load_model_tests(kind=kind):
      if kind == "real":
        path = Path(onnx.__file__).parents[1] / str(case.url)
        model = onnx.load(path)
        found[case.name] = Case(
          case.name, kind, model, lambda p=path, n=case.model_name, m=model: from_light(p, n, m), case.rtol, case.atol
        )
      else:
        folder = Path(str(case.model_dir))
        model = onnx.load(folder / "model.onnx")
        found[case.name] = Case(
          case.name, kind, model, lambda f=folder, m=model: from_folder(f, m), case.rtol, case.atol
        )
  return found


def excluded(name: str) -> str | None:
  """Why a case is excluded; None for one that has to pass."""
  return EXCLUDED.get(name.removeprefix("test_"))
