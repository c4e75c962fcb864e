"""Trains one network on several devices at once, each with a part of every batch, and compares with one device.

    hatch run python integration/examples/data_parallel.py    # --help lists the options

The program is that of one device but for three lines: weights are copied to all devices, images and labels are split
along their first axis. Gradients are then summed over the devices where they have to be; the schedule shows how much
that copies. `CPU` is a machine of eight devices to try this on; `--devices CUDA,CUDA:1` takes real ones.
"""

import argparse
import sys

import numpy as np
from sklearn.datasets import load_digits
from tqdm import trange

from tiny_tensor import Tensor, TinyJit, nn


class Net:
  """A convolution and two linear layers: `(n, 1, 8, 8)` → `(n, 10)`."""

  def __init__(self) -> None:
    self.conv = nn.Conv2d(1, 16, 3, padding=1)
    self.hidden, self.out = nn.Linear(16 * 4 * 4, 64), nn.Linear(64, 10)

  def __call__(self, x: Tensor) -> Tensor:
    return self.out(self.hidden(self.conv(x).relu().max_pool2d().flatten(1)).relu())


def train(devices: tuple[str, ...], images: np.ndarray, labels: np.ndarray, steps: int, batch: int) -> list[float]:
  """The loss of each step. `devices` of one name is a program for one device."""
  Tensor.manual_seed(0)  # the same first weights everywhere
  net = Net()
  weights = nn.state.get_parameters(net)
  if len(devices) > 1:
    for weight in weights:
      weight.shard_(devices)  # a copy on each
  opt = nn.optim.SGD(weights, lr=0.1, momentum=0.9)
  rng = np.random.default_rng(0)

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    return loss.realize()

  losses = []
  with Tensor.train():
    for _ in trange(steps, unit=" steps", desc=f"{len(devices)} × {devices[0]}", file=sys.stdout):
      chosen = rng.choice(len(labels), batch, replace=False)
      x, y = Tensor(images[chosen], device=devices[0]), Tensor(labels[chosen], device=devices[0])
      if len(devices) > 1:
        x, y = x.shard(devices, axis=0), y.shard(devices, axis=0)  # a part on each
      losses.append(step(x.realize(), y.realize()).item())
  return losses


def main() -> int:
  """Gives 0 if the losses are those of one device, but for rounding."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--devices", default="CPU,CPU:1,CPU:2,CPU:3", help="names with commas between them")
  parser.add_argument("--steps", type=int, default=100)
  parser.add_argument("--batch", type=int, default=256)
  args = parser.parse_args()
  devices = tuple(args.devices.split(","))

  digits = load_digits()
  images, labels = (digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int32)
  alone = train(devices[:1], images, labels, args.steps, args.batch)
  together = train(devices, images, labels, args.steps, args.batch)
  apart = float(np.abs(np.subtract(alone, together)).max())
  print("step      one device    together")
  for i in sorted({0, args.steps // 10, args.steps // 2, args.steps - 1}):
    print(f"{i + 1:4d} {alone[i]:15.6f} {together[i]:11.6f}")
  print(f"the largest difference of {args.steps} losses is {apart:.1e}")
  return 0 if apart < 1e-3 else 1


if __name__ == "__main__":
  sys.exit(main())
