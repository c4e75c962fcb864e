"""Writes two kernels by hand: the Mandelbrot set as a picture, and how long its points take to escape.

    hatch run python integration/examples/custom_kernel.py    # --help lists the options

`Tensor.custom_kernel` takes a function that builds a kernel of UOps, the same that the compiler makes of tensors. The
kernel is scheduled, compiled and captured as generated ones are, on every device. The first here iterates z² + c for
each pixel and keeps z in registers; the second counts pixels by their number of steps. NumPy checks a part of both.
Draws `out/mandelbrot.png`.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from tiny_tensor import Device, Tensor, UOp, dtypes
from tiny_tensor.custom_kernel import Memory
from tiny_uop import AddrSpace, Ops

LEFT, TOP, SIDE = -2.2, -1.5, 3.0  # the part of the plane that is looked at


def mandelbrot(steps: Memory, most: int) -> UOp:
  """`steps[y, x]`, int32, becomes the number of steps until |z|² > 4, at most `most`."""
  rows, columns = steps.shape
  y, x = UOp.range(rows, 0), UOp.range(columns, 1)
  real = x.cast(dtypes.float32) * (SIDE / columns) + LEFT
  imaginary = y.cast(dtypes.float32) * (SIDE / rows) + TOP

  z = UOp.alloc(0, dtypes.float32.ptr(3, AddrSpace.REG))  # this pixel's z, and how many steps it took
  own = z.after(y, x)  # in these loops: what is stored through it is stored for each y and x
  begun = own.after(*(own.index(part).store(0.0) for part in range(3)))
  step = UOp.range(most, 2)
  now = begun.after(step)  # in this step: the loop reads what its last iteration wrote, so it runs in order
  a, b, taken = (now.index(part).load() for part in range(3))
  inside = a * a + b * b <= 4.0
  done = UOp.group(
    now.index(0).store(inside.where(a * a - b * b + real, a)),
    now.index(1).store(inside.where(a * b * 2.0 + imaginary, b)),
    now.index(2).store(inside.where(taken + 1.0, taken)),
  ).end(step)
  return steps[y, x].store(z.after(done).index(2).load().cast(dtypes.int32)).end(y, x)


def histogram(bins: Memory, numbers: Memory) -> UOp:
  """`bins[k]` becomes how many of the numbers are k."""
  i, n = UOp.range(bins.size, 0), UOp.range(numbers.size, 1)
  empty = bins.after(bins.flat(i).store(0).end(i))
  return empty.flat(numbers.flat(n).load().cast(dtypes.index)).accumulate(Ops.ADD, 1).end(n)


def in_numpy(size: int, most: int, rows: range) -> np.ndarray:
  """The same steps for some rows of the picture."""
  x, y = (np.arange(size, dtype=np.float32) * np.float32(SIDE / size) + np.float32(v) for v in (LEFT, TOP))
  c = x[None] + 1j * y[list(rows), None]
  z, steps = np.zeros_like(c), np.zeros(c.shape, np.int32)
  for _ in range(most):
    inside = z.real * z.real + z.imag * z.imag <= 4
    z = np.where(inside, z * z + c, z)
    steps += inside
  return steps


def draw(steps: np.ndarray, most: int, path: Path) -> None:
  """Points of the set are black, the others lighter and warmer the sooner they leave."""
  share = (np.log(steps + 1.0) / np.log(most + 1.0))[..., None]
  colours = np.array([0.05, 0.1, 0.35]) * (1 - share) + np.array([2.2, 1.4, 0.6]) * share**2
  colours[steps == most] = 0
  Image.fromarray(np.uint8(np.clip(colours, 0, 1) * 255)).save(path)


def main() -> int:
  """Gives 0 if NumPy finds the same: all counts, and the first steps of all points but 0.2 %."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--size", type=int, default=800, help="pixels of each side")
  parser.add_argument("--steps", type=int, default=300, help="steps after which a point belongs to the set")
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)

  picture = Tensor.empty(args.size, args.size, dtype=dtypes.int32)
  picture = picture.custom_kernel(fxn=partial(mandelbrot, most=args.steps))[0]
  bins = Tensor.empty(args.steps + 1, dtype=dtypes.int32).custom_kernel(picture, fxn=histogram)[0]
  start = time.perf_counter()
  Tensor.realize(picture, bins)
  steps, counts = picture.numpy(), bins.numpy()
  print(f"{args.size}² points in {time.perf_counter() - start:.2f} s on {Device.DEFAULT}, compiling included")

  area = counts[args.steps] / steps.size * SIDE**2
  print(f"{counts[args.steps]:,} points stay: an area of {area:.3f} (1.507 for more points and steps)")
  draw(steps, args.steps, args.out / "mandelbrot.png")
  print(f"drew {args.out / 'mandelbrot.png'}")

  rows, soon = (
    range(args.size // 32, args.size, max(1, args.size // 16)),
    min(50, args.steps),
  )  # later, rounding decides
  ours, theirs = (np.minimum(found, soon) for found in (steps[list(rows)], in_numpy(args.size, soon, rows)))
  differ = float((ours != theirs).mean())
  print(f"NumPy finds {differ:.3%} of the points in {len(rows)} rows otherwise within {soon} steps")
  same_counts = bool((np.bincount(steps.ravel(), minlength=args.steps + 1) == counts).all())
  return 0 if differ < 2e-3 and same_counts else 1


if __name__ == "__main__":
  sys.exit(main())
