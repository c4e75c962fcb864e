"""Simulates heat in a metal plate with a hole and two radiators, each frame of it one captured graph.

    hatch run python integration/examples/heat.py    # --help lists the options

The heat equation u' = div(k grad u) + s on a square, by explicit steps in time (FTCS): edges are kept at zero, the hole
conducts a thousandth of what metal does. A simulation is a loop over tensors like any other program: `TinyJit` captures
a frame of 25 steps, and replays it. First a plain plate is compared with the solution on paper. Draws `out/heat.png`.
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tqdm import trange

from tiny_tensor import Tensor, TinyJit

STEPS = 25  # of a frame


def change(u: Tensor, k: Tensor) -> Tensor:
  """div(k grad u) in units of a cell: what flows in over the four sides, which conduct as their cells do on average.

  `u` and `k` are `(n, n)`; beyond the edges `u` is 0 and `k` as at the edge.
  """
  wide, conducts = u.pad((1, 1, 1, 1)), k.pad((1, 1, 1, 1), mode="replicate")
  flow_y = (wide[1:] - wide[:-1]) * (conducts[1:] + conducts[:-1]) / 2
  flow_x = (wide[:, 1:] - wide[:, :-1]) * (conducts[:, 1:] + conducts[:, :-1]) / 2
  return (flow_y[1:] - flow_y[:-1])[:, 1:-1] + (flow_x[:, 1:] - flow_x[:, :-1])[1:-1]


@TinyJit
def frame(u: Tensor, k: Tensor, source: Tensor) -> Tensor:
  """The plate after `STEPS` steps of a fifth of a unit of time; a quarter is what is stable."""
  for _ in range(STEPS):
    u = (u + 0.2 * (change(u, k) + source)).contiguous()
  return u.realize()


def error_on_paper(n: int, frames: int) -> float:
  """A plate that starts as sin(x) sin(y) keeps its form and decays at a known rate: the largest relative error."""
  form = np.sin(np.pi * np.arange(1, n + 1) / (n + 1))
  start = np.outer(form, form).astype(np.float32)
  u, ones, nothing = Tensor(start), Tensor.ones(n, n).contiguous(), Tensor.zeros(n, n).contiguous()
  for _ in range(frames):
    u = frame(u, ones, nothing).clone()
  rate = 1 - 0.2 * 8 * math.sin(math.pi / 2 / (n + 1)) ** 2  # of a step: the eigenvalue of the discrete Laplacian
  return float(np.abs(u.numpy() - start * rate ** (STEPS * frames)).max() / start.max())


def plate(n: int) -> tuple[np.ndarray, np.ndarray]:
  """(conductivity, heat given off) of each cell."""
  y, x = (np.mgrid[:n, :n] + 0.5) / n
  hole = (x - 0.62) ** 2 + (y - 0.45) ** 2 < 0.17**2
  tall = (np.abs(x - 0.3) < 0.02) & (np.abs(y - 0.5) < 0.3)
  wide = (np.abs(x - 0.7) < 0.15) & (np.abs(y - 0.85) < 0.02)
  radiators = tall | wide
  return np.where(hole, 1e-3, 1).astype(np.float32), radiators.astype(np.float32)


def main() -> int:
  """Gives 0 if the plain plate decays as it does on paper."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--size", type=int, default=256, help="cells of each side")
  parser.add_argument("--frames", type=int, default=400, help=f"frames of {STEPS} steps")
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)

  error = error_on_paper(args.size, 4)
  print(f"a plain plate after {4 * STEPS} steps: the largest error is {error:.1e} of the solution on paper")
  conductivity, source = (Tensor(part) for part in plate(args.size))
  u = Tensor.zeros(args.size, args.size).contiguous().realize()
  kept = {round(args.frames * share) - 1 for share in (0.02, 0.1, 0.4, 1)}
  pictures = []
  for i in trange(args.frames, unit=" frames", file=sys.stdout):
    u = frame(u, conductivity, source).clone()  # the result's memory is used again by the next call
    if i in kept or i == args.frames - 1:
      pictures.append((i + 1, u.numpy()))
  heat = pictures[-1][1]
  print(
    f"{args.frames * STEPS:,} steps, {args.size}² cells: the hottest is at {heat.max():.1f}, the mean {heat.mean():.1f}"
  )

  figure = Figure(figsize=(10, 3), layout="constrained")
  for axes, (count, values) in zip(np.atleast_1d(figure.subplots(1, len(pictures))), pictures):
    axes.imshow(values, cmap="inferno", vmin=0, vmax=heat.max())
    axes.set(title=f"{count * STEPS:,} steps", xticks=[], yticks=[])
  figure.savefig(args.out / "heat.png", dpi=110)
  print(f"drew {args.out / 'heat.png'}")
  return 0 if error < 1e-3 else 1


if __name__ == "__main__":
  sys.exit(main())
