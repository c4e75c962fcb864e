"""Learns to draw digits: a variational autoencoder with two latent numbers, so that all it can draw fits on a map.

    hatch run python integration/examples/vae.py    # --help lists the options

The encoder gives each of scikit-learn's 1,797 handwritten digits (8×8 pixels; Alpaydin & Kaynak, 1998) a mean and a
spread in the plane, the decoder draws a digit from a point of it. Both are trained to reproduce the digits while the
points stay close to a normal distribution (Kingma & Welling, 2013). Draws `out/vae.png`: where the digits lie, and what
the decoder draws all over the plane.
"""

import argparse
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from tqdm import trange

from tiny_tensor import Tensor, TinyJit, nn


class VAE:
  """Images `(n, 64)` of pixels in [0, 1] → scores of pixels `(n, 64)`, means and logarithms of variances `(n, 2)`."""

  def __init__(self, hidden: int) -> None:
    self.encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    self.mean, self.log_variance = nn.Linear(hidden, 2), nn.Linear(hidden, 2)
    self.decoder = nn.Sequential(
      nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 64)
    )

  def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
    hidden = self.encoder(x)
    return self.mean(hidden), self.log_variance(hidden)

  def __call__(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean, log_variance = self.encode(x)
    drawn = mean + (log_variance / 2).exp() * Tensor.randn(*mean.shape)  # a sample that gradients pass through
    return self.decoder(drawn), mean, log_variance


def parts(model: VAE, x: Tensor) -> tuple[Tensor, Tensor]:
  """(error of the drawing, distance of the points from a normal distribution), in nats per image."""
  scores, mean, log_variance = model(x)
  error = scores.binary_crossentropy_logits(x, reduction="none").sum(-1).mean()
  distance = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(-1).mean()
  return error, distance


def draw(model: VAE, images: np.ndarray, labels: np.ndarray, path: Path, cells: int = 12) -> None:
  """The means of all images, coloured by digit, beside what is drawn at the quantiles of the normal distribution."""
  points = model.encode(Tensor(images))[0].numpy()
  across = np.array([NormalDist().inv_cdf((i + 0.5) / cells) for i in range(cells)], np.float32)
  grid = np.stack(np.meshgrid(across, across[::-1]), -1).reshape(-1, 2)
  drawn = model.decoder(Tensor(grid)).sigmoid().numpy().reshape(cells, cells, 8, 8)
  figure = Figure(figsize=(10, 5), layout="constrained")
  left, right = figure.subplots(1, 2)
  dots = left.scatter(*points.T, c=labels, cmap="tab10", s=6, vmin=-0.5, vmax=9.5)
  left.set(title="where the digits lie", aspect="equal", xlim=(-3.5, 3.5), ylim=(-3.5, 3.5))
  figure.colorbar(dots, ax=left, ticks=range(10), shrink=0.7)
  spaced = np.pad(drawn, [(0, 0), (0, 0), (1, 1), (2, 2)])
  right.imshow(spaced.transpose(0, 2, 1, 3).reshape(cells * 10, -1), cmap="gray_r")
  right.set(title="what the decoder draws in between", xticks=[], yticks=[])
  figure.savefig(path, dpi=110)


def main() -> int:
  """Gives 0 if drawing through two numbers is better than drawing the average image."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--steps", type=int, default=3000)
  parser.add_argument("--batch", type=int, default=256)
  parser.add_argument("--hidden", type=int, default=256)
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)

  digits = load_digits()
  images = (digits.data / 16).astype(np.float32)
  average = images.mean(0).clip(1e-6, 1 - 1e-6)
  blind = -float((images * np.log(average) + (1 - images) * np.log(1 - average)).sum(1).mean())
  Tensor.manual_seed(0)
  model = VAE(args.hidden)
  opt = nn.optim.Adam(nn.state.get_parameters(model), lr=2e-3)
  everything, rng = Tensor(images).realize(), np.random.default_rng(0)

  @TinyJit
  def step(chosen: Tensor) -> tuple[Tensor, Tensor]:
    opt.zero_grad()
    error, distance = parts(model, everything[chosen])
    (error + distance).backward()
    opt.step()
    return error.realize(), distance.realize()

  bar = trange(args.steps, unit=" steps", file=sys.stdout)
  for i in bar:
    with Tensor.train():
      found = step(Tensor(rng.integers(0, len(images), args.batch, dtype=np.int32)))
    if i % 50 == 0 or i == args.steps - 1:  # reading waits for the device
      error, distance = (part.item() for part in found)
      bar.set_postfix(error=f"{error:.2f}", distance=f"{distance:.2f}")

  print(f"error {error:.2f} nats an image, distance {distance:.2f}; the average image alone has {blind:.2f}")
  draw(model, images, digits.target, args.out / "vae.png")
  print(f"drew {args.out / 'vae.png'}")
  return 0 if error < blind else 1


if __name__ == "__main__":
  sys.exit(main())
