"""ONNX models here and in onnxruntime, by turns: `hatch run oracle:onnx-bench [--batch N …] [models]`.

Each has one thread, and times are of the processor, so that what else the machine does counts little. With more, as
CPU_COUNT=2 in the environment says, times are those of a clock, which wants a machine that nobody else uses. A row has
the median of ours and theirs, and how many times as fast ours is; outputs are compared first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("CPU_COUNT", "1")  # threads of each, before the device is opened
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "pytorch"))

import numpy as np
import onnxruntime
import torch
from onnx_models import Encoder, Tagger, UNet, exported, mobilenet_v2, randomised, resnet18

import tiny_onnx
from tiny_tensor import Tensor

THREADS = int(os.environ["CPU_COUNT"])


def images(size: int) -> Callable[[int], Any]:
  return lambda batch: torch.randn(batch, 3, size, size)


def tokens(length: int) -> Callable[[int], Any]:
  return lambda batch: torch.randint(0, 500, (batch, length))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
  "resnet18": (resnet18, images(224)),
  "mobilenet_v2": (mobilenet_v2, images(224)),
  "encoder": (Encoder, tokens(128)),
  "tagger": (Tagger, tokens(24)),
  "unet": (UNet, images(64)),
}


REST, SLICE = 0.1, 10
"""Seconds of rest before calls that a clock times, since threads of others look for work a while before they sleep; and
how many calls one after the other are a turn then."""


def seconds(call: Callable[[], Any]) -> float:
  """Of a call: of the processor for one thread; of a clock for more, the median of a slice."""
  if THREADS == 1:
    began = time.process_time()
    call()
    return time.process_time() - began
  time.sleep(REST)
  found = []
  for _ in range(SLICE):
    began = time.perf_counter()
    call()
    found.append(time.perf_counter() - began)
  return sorted(found)[SLICE // 2]


def row(name: str, path: Path, x: Any, turns: int) -> str:
  """Ours and theirs on one input. Raises AssertionError where they differ."""
  options = onnxruntime.SessionOptions()
  options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
  session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
  model, given = tiny_onnx.load(path), Tensor(x).realize()
  expected = session.run(None, {"x0": x})[0]
  for _ in range(3):
    found = model(given)["y"].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
  times = [
    (seconds(lambda: model(given)["y"].numpy()), seconds(lambda: session.run(None, {"x0": x}))) for _ in range(turns)
  ]
  ours, theirs = (sorted(column)[turns // 2] * 1e3 for column in zip(*times))
  return f"{name:14} {len(x):5} {ours:9.2f} {theirs:12.2f} {theirs / ours:6.2f}×"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(MODELS)}; all without any")
  parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
  parser.add_argument("--turns", type=int, default=9)
  given = parser.parse_args()
  print(f"{'model':14} {'batch':>5} {'ours, ms':>9} {'onnxruntime':>12} {'ours':>7}")
  with tempfile.TemporaryDirectory() as folder:
    for name in given.models or MODELS:
      make, inputs = MODELS[name]
      path = Path(folder) / f"{name}.onnx"
      exported(randomised(make()), (inputs(2),), path, {"x0": {0: "batch"}, "y": {0: "batch"}})
      for batch in given.batch:
        print(row(name, path, inputs(batch).numpy(), given.turns), flush=True)


if __name__ == "__main__":
  main()
