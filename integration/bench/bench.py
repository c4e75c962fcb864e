"""How fast common operations are: ours against NumPy, and PyTorch where it is installed.

    hatch run bench                 # or hatch run oracle:bench, with PyTorch
    hatch run bench --json          # for machines

Each result is compared with one in float64 before it is timed. Times are the best of several runs in turn, so that the
machine's moods hit all alike; a ratio above 1 means that ours is faster. All use as many threads as they like, or as
`--threads` says.
"""

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Array = Any


@dataclass(frozen=True)
class Case:
  """One operation on given inputs: how each library does it, and how many operations (or bytes) that is."""

  name: str
  shapes: tuple[tuple[int, ...], ...]
  ours: Callable[..., Any]
  numpy: Callable[..., Array]
  torch: Callable[..., Any]
  work: float
  unit: str
  tolerance: float = 1e-4


def numpy_softmax(x: Array) -> Array:
  import numpy as np

  e = np.exp(x - x.max(axis=-1, keepdims=True))
  return e / e.sum(axis=-1, keepdims=True)


def numpy_conv(x: Array, w: Array) -> Array:
  """A 3×3 convolution with padding 1, as a product with the unrolled windows."""
  import numpy as np

  padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
  windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
  return np.tensordot(windows, w, axes=((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def numpy_gelu(x: Array, y: Array) -> Array:
  import numpy as np

  z = x * y + x
  return (0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))).astype(x.dtype)


def torch_gelu(x: Any, y: Any) -> Any:
  import torch

  return torch.nn.functional.gelu(x * y + x, approximate="tanh")


def torch_conv(x: Any, w: Any) -> Any:
  import torch

  return torch.nn.functional.conv2d(x, w, padding=1)


def cases() -> list[Case]:
  """The operations, in sizes that leave the caches and that do not."""
  made = []
  for n in (256, 1024):
    made.append(
      Case(
        f"matmul {n}",
        ((n, n), (n, n)),
        lambda a, b: a @ b,
        lambda a, b: a @ b,
        lambda a, b: a @ b,
        2e-9 * n**3,
        "GFLOPS",
      )
    )
  batch, channels, size = 16, 64, 32
  made.append(
    Case(
      f"conv 3×3 {batch}×{channels}×{size}²",
      ((batch, channels, size, size), (channels, channels, 3, 3)),
      lambda x, w: x.conv2d(w, padding=1),
      numpy_conv,
      torch_conv,
      2e-9 * batch * channels * channels * 9 * size * size,
      "GFLOPS",
      1e-3,
    )
  )
  for rows, columns in ((64, 1000), (4096, 1024)):
    made.append(
      Case(
        f"softmax {rows}×{columns}",
        ((rows, columns),),
        lambda x: x.softmax(-1),
        numpy_softmax,
        lambda x: x.softmax(-1),
        8e-9 * rows * columns,
        "GB/s",
      )
    )
  for count in (100_000, 10_000_000):
    made.append(
      Case(
        f"gelu(x y + x) {count:.0e}",
        ((count,), (count,)),
        lambda x, y: (x * y + x).gelu(),
        numpy_gelu,
        torch_gelu,
        12e-9 * count,
        "GB/s",
      )
    )
    made.append(
      Case(
        f"sum {count:.0e}", ((count,),), lambda x: x.sum(), lambda x: x.sum(), lambda x: x.sum(), 4e-9 * count, "GB/s"
      )
    )
  return made


def best(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
  """The shortest time of each of several functions, called in turn for about so many seconds each."""
  times: dict[str, float] = dict.fromkeys(runs, float("inf"))
  end, rounds = time.perf_counter() + seconds * len(runs), 0
  while time.perf_counter() < end or rounds < 5:
    for name, run in runs.items():
      start = time.perf_counter()
      run()
      times[name] = min(times[name], time.perf_counter() - start)
    rounds += 1
  return times


def measure(case: Case, seconds: float, with_torch: bool) -> dict[str, Any]:
  """One row: seconds of each library. Raises AssertionError if a result of ours is wrong."""
  import numpy as np

  from tiny_tensor import Device, Tensor, TinyJit

  rng = np.random.default_rng(0)
  arrays = [rng.standard_normal(shape).astype(np.float32) for shape in case.shapes]
  exact = case.numpy(*[a.astype(np.float64) for a in arrays])
  tensors = [Tensor(a).realize() for a in arrays]
  jitted = TinyJit(lambda *args: case.ours(*args).realize())
  device = Device[Device.DEFAULT]
  for _ in range(3):
    result = jitted(*tensors).numpy()
    error = float(np.abs(result - exact).max() / max(float(np.abs(exact).max()), 1e-30))
    assert error <= case.tolerance, (
      f"{case.name}: off by {error:.1e} of the largest value, allowed is {case.tolerance:.0e}"
    )

  def ours() -> None:
    jitted(*tensors)
    device.sync()

  runs: dict[str, Callable[[], Any]] = {"ours": ours, "numpy": lambda: case.numpy(*arrays)}
  if with_torch:
    import torch

    theirs = [torch.from_numpy(a) for a in arrays]
    runs["torch"] = lambda: case.torch(*theirs)
  return {"name": case.name, "unit": case.unit, "work": case.work, "error": error, "seconds": best(runs, seconds)}


def show(row: dict[str, Any]) -> str:
  """A row of the table."""
  mine, cells = row["seconds"]["ours"], []
  for name, seconds in row["seconds"].items():
    ratio = "" if name == "ours" else f" ({seconds / mine:5.2f}×)"
    cells.append(f"{seconds * 1e3:9.3f} ms{ratio}")
  return f"{row['name']:<22} {row['work'] / mine:8.1f} {row['unit']:<6} {row['error']:8.1e} " + " ".join(cells)


def main() -> int:
  """Prints the table."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--json", action="store_true", help="one JSON object per line instead of a table")
  parser.add_argument("--seconds", type=float, default=1.0, help="time for each library and operation")
  parser.add_argument("--threads", type=int, default=0, help="threads for NumPy and PyTorch (ours: THREADS)")
  parser.add_argument("only", nargs="*", help="operations whose names contain one of these")
  args = parser.parse_args()
  if args.threads:  # before the libraries are loaded
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
      os.environ[variable] = str(args.threads)
  with_torch = importlib.util.find_spec("torch") is not None
  if not args.json:
    libraries = "  ".join(["ours", "numpy (ratio)", *(["torch (ratio)"] if with_torch else [])])
    print(f"{'operation':<22} {'ours':>8} {'':<6} {'error':>8} {libraries}")
  for case in cases():
    if not args.only or any(part in case.name for part in args.only):
      row = measure(case, args.seconds, with_torch)
      print(json.dumps(row) if args.json else show(row), flush=True)
  return 0


if __name__ == "__main__":
  sys.exit(main())
