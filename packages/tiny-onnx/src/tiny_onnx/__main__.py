"""`python -m tiny_onnx MODEL.onnx`: what a model is, whether it computes what is expected, and how fast."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tiny_onnx.analysis import constants_of, count_ops
from tiny_onnx.errors import ModelError
from tiny_onnx.model import Model, Port, load
from tiny_onnx.values import ARRAY_DTYPES, Narrow, numpy_of, size_of
from tiny_runtime import profile
from tiny_tensor import GlobalCounters, Tensor

UNITS = ("", "k", "M", "G", "T")


def amount(number: float, unit: str) -> str:
  """A number with a prefix: `3.6 GFLOP`."""
  step = 0
  while number >= 1000 and step < len(UNITS) - 1:
    number, step = number / 1000, step + 1
  return f"{number:.4g} {UNITS[step]}{unit}"


def sizes(given: Sequence[str]) -> dict[str, int]:
  """`N=8` for each symbolic size."""
  made = {}
  for text in given:
    name, _, number = text.partition("=")
    if not number.isdigit():
      raise ModelError(f"--size takes NAME=NUMBER, found {text!r}")
    made[name] = int(number)
  return made


def example(port: Port, known: dict[str, int]) -> Any:
  """An input of the declared shape: small numbers; sizes that are not known are 1."""
  if port.kind != "tensor" or port.shape is None or port.elem not in ARRAY_DTYPES:
    raise ModelError(f"input {port} cannot be made up: give it with --run INPUTS.npz")
  shape = tuple(s if isinstance(s, int) else known.get(s or "", 1) for s in port.shape)
  dtype = ARRAY_DTYPES[port.elem]
  if dtype.kind == "f":
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)
  return np.ones(shape, dtype)


def describe(model: Model, proto: onnx.ModelProto, path: Path, known: dict[str, int], given: dict[str, Any]) -> None:
  """Inputs, outputs, operators, weights; operations and memory of a call, with `given` inputs or made up ones."""
  opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in model.opsets.items())
  weights = [*map(size_of, constants_of(model.graph))]
  producer = f"{proto.producer_name} {proto.producer_version}".strip() or "unknown producer"
  print(f"{path.name}: {producer}, opsets {opsets}")
  for title, ports in (("inputs", model.inputs), ("outputs", model.outputs)):
    print(f"{title}:")
    for port in ports.values():
      read = ", read in each call" if port.name in model.read_inputs else ""
      print(f"  {port}{read}")
  counted = count_ops(model.graph)
  print(f"{sum(counted.values())} nodes: " + ", ".join(f"{name} {n}" for name, n in counted.most_common()))
  print(f"weights: {amount(sum(weights), 'B')} in {len(weights)} tensors")
  if model.eager_because:
    print(f"computed node by node: {model.eager_because}")
    return
  names = dict.fromkeys(s for p in model.inputs.values() for s in p.shape or () if isinstance(s, str))
  where = f" with {', '.join(f'{n} = {known.get(n, 1)}' for n in names)}" if names and not given else ""
  try:
    operations, most = model.planned(given or _examples(model, known))
  except ModelError as error:
    print(f"operations and memory are not known, since a call{where} fails: {error}")
    if where:
      print("give other sizes with --size NAME=NUMBER, or inputs with --run INPUTS.npz")
    return
  print(f"a call{where}: {amount(operations, 'OP')}, values of at most {amount(most, 'B')} at the same time")


def timed(model: Model, inputs: dict[str, Any], calls: int) -> None:
  """First call, and the median of others, of processor and wall time."""
  began = time.perf_counter()
  finish(model, inputs)
  first = time.perf_counter() - began
  for _ in range(2):
    finish(model, inputs)
  GlobalCounters.reset()
  walls, cpus = [], []
  for _ in range(calls):
    wall, cpu = time.perf_counter(), time.process_time()
    finish(model, inputs)
    walls.append(time.perf_counter() - wall)
    cpus.append(time.process_time() - cpu)
  operations, moved = GlobalCounters.global_ops / calls, GlobalCounters.global_mem / calls
  wall, cpu = sorted(walls)[calls // 2], sorted(cpus)[calls // 2]
  print(f"first call {first:.2f} s, then {wall * 1e3:.3g} ms, {cpu * 1e3:.3g} ms of processor time (median of {calls})")
  print(
    f"a call: {amount(operations, 'OP')}, {amount(moved, 'B')} read and written, {amount(operations / wall, 'OP/s')}"
  )


def finish(model: Model, inputs: dict[str, Any]) -> dict[str, Any]:
  """A call, with its outputs computed."""
  made = model(inputs)
  for value in made.values():
    for each in value if isinstance(value, list) else [value]:
      if isinstance(each, (Tensor, Narrow)):
        each.realize()
  return made


def check(found: dict[str, Any], reference: dict[str, Any], rtol: float, atol: float) -> bool:
  """Compares outputs with those of a file, by name, and prints how far they are apart."""
  good = True
  for name, expected in reference.items():
    if name not in found:
      print(f"{name}: the model has no such output")
      good = False
      continue
    mine = np.asarray(numpy_of(found[name]))
    if mine.shape != expected.shape or mine.dtype != expected.dtype:
      print(f"{name}: {mine.dtype}{list(mine.shape)}, expected {expected.dtype}{list(expected.shape)}")
      good = False
      continue
    number = mine.dtype.kind in "fiu"
    close = np.allclose(mine, expected, rtol, atol, equal_nan=True) if number else np.array_equal(mine, expected)
    far = float(np.max(np.abs(mine.astype(np.float64) - expected.astype(np.float64)))) if number and mine.size else 0.0
    print(f"{name}: {'equal' if close else 'DIFFERENT'}, at most {far:.3g} apart")
    good = good and bool(close)
  return good


def main(argv: Sequence[str] | None = None) -> int:
  """The command. 0; 1 where outputs differ or a model cannot be used."""
  parser = argparse.ArgumentParser("python -m tiny_onnx", description=__doc__)
  parser.add_argument("model", type=Path)
  parser.add_argument("--run", type=Path, metavar="INPUTS.npz", help="inputs by name; without it they are made up")
  parser.add_argument("--save", type=Path, metavar="OUTPUTS.npz", help="where the outputs go")
  parser.add_argument("--check", type=Path, metavar="REFERENCE.npz", help="outputs to compare with, by name")
  parser.add_argument("--rtol", type=float, default=1e-3)
  parser.add_argument("--atol", type=float, default=1e-5)
  parser.add_argument("--time", type=int, nargs="?", const=20, metavar="CALLS", help="how long calls take")
  parser.add_argument("--profile", action="store_true", help="which kernels take how long")
  parser.add_argument("--size", action="append", default=[], metavar="NAME=NUMBER", help="a symbolic size")
  given = parser.parse_args(argv)
  try:
    model, known = load(given.model), sizes(given.size)
    arrays = _arrays(given.run) if given.run else {}
    describe(model, onnx.load(given.model, load_external_data=False), given.model, known, arrays)
    if not (given.run or given.save or given.check or given.time or given.profile):
      return 0
    inputs = arrays or _examples(model, known)
    found = finish(model, inputs)
    for name, value in found.items():
      print(f"{name} = {_short(numpy_of(value))}")
    if given.save:
      np.savez(given.save, **{name: numpy_of(value) for name, value in found.items()})
    if given.time:
      timed(model, inputs, given.time)
    if given.profile:
      for _ in range(3):
        finish(model, inputs)
      with profile() as record:
        finish(model, inputs)
      print(record)
    if given.check:
      return 0 if check(found, _arrays(given.check), given.rtol, given.atol) else 1
  except (ModelError, OSError, ValueError) as error:
    print(f"error: {error}", file=sys.stderr)
    return 1
  return 0


def _arrays(path: Path) -> dict[str, Any]:
  """The arrays of an .npz file by name; nothing in it is executed."""
  with np.load(path, allow_pickle=False) as file:
    return {name: file[name] for name in file.files}


def _examples(model: Model, known: dict[str, int]) -> dict[str, Any]:
  return {name: example(port, known) for name, port in model.inputs.items()}


def _short(value: Any) -> str:
  if not isinstance(value, np.ndarray):
    return str(value)[:200]
  with np.printoptions(threshold=8, edgeitems=3, precision=5):
    return f"{value.dtype}{list(value.shape)} {' '.join(str(value.reshape(-1)).split())}"


if __name__ == "__main__":
  sys.exit(main())
