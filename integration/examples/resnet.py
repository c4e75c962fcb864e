"""Trains ResNet-18 on pictures: scikit-learn's digits, or a folder of your own with one folder per class.

    hatch run python integration/examples/resnet.py    # --help lists the options

The network is that of He et al. (2016), with the first layer for small pictures, and `--width 64` for its usual size.
Pictures are turned, scaled and shifted at random, on the device, in the captured step. A checkpoint is written after
every epoch; the same command goes on from it, after Ctrl-C too. Draws `out/resnet.png`: accuracy and loss by epoch.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image
from sklearn.datasets import load_digits
from tqdm import tqdm

from tiny_tensor import Tensor, TinyJit, nn
from tiny_tensor.nn import functional as F

Pictures = tuple[np.ndarray, np.ndarray]


class Block:
  """Two 3×3 convolutions, added to what goes in (through a 1×1 one where the size changes)."""

  def __init__(self, into: int, out: int, stride: int) -> None:
    self.conv1, self.norm1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm(out)
    self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm(out)
    same = stride == 1 and into == out
    self.around = None if same else nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm(out))

  def __call__(self, x: Tensor) -> Tensor:
    y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
    return (y + (x if self.around is None else self.around(x))).relu()


class ResNet18:
  """Pictures `(n, channels, height, width)` → scores `(n, classes)`."""

  def __init__(self, channels: int, classes: int, width: int) -> None:
    self.first, self.norm = nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm(width)
    sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 4 * width, 2), (4 * width, 8 * width, 2)]
    self.blocks = [block for into, out, stride in sizes for block in (Block(into, out, stride), Block(out, out, 1))]
    self.head = nn.Linear(8 * width, classes)

  def __call__(self, x: Tensor) -> Tensor:
    x = self.norm(self.first(x)).relu()
    for block in self.blocks:
      x = block(x)
    return self.head(x.mean((2, 3)))


def augmented(x: Tensor) -> Tensor:
  """Each picture turned by up to 10°, scaled and shifted by up to a tenth."""
  n = int(x.shape[0])
  angle, scale = Tensor.uniform(n, low=-1, high=1) * math.radians(10), Tensor.uniform(n, low=0.9, high=1.1)
  cos, sin, shift = angle.cos() * scale, angle.sin() * scale, Tensor.uniform(2, n, low=-0.2, high=0.2)
  theta = Tensor.stack(cos, -sin, shift[0], sin, cos, shift[1], dim=1).reshape(n, 2, 3)
  return F.grid_sample(x, F.affine_grid(theta, (n, *map(int, x.shape[1:]))))


def load(folder: Path | None, size: int) -> tuple[Pictures, Pictures, list[str]]:
  """Pictures in [-1, 1] and their classes: four fifths to train on, the others held out; the names of the classes."""
  if folder is None:
    digits = load_digits()
    names, labels = [str(i) for i in range(10)], digits.target
    files = [Image.fromarray(np.uint8(image * 255 / 16)) for image in digits.images]
  else:
    names = sorted(part.name for part in folder.iterdir() if part.is_dir())
    paths = [(path, i) for i, name in enumerate(names) for path in sorted((folder / name).iterdir())]
    if len(names) < 2 or not paths:
      sys.exit(f"{folder}: expected at least two folders of pictures, one for each class, found {names}")
    files, labels = [Image.open(path).convert("RGB") for path, _ in paths], np.array([i for _, i in paths])
  pixels = np.stack([np.asarray(file.resize((size, size), Image.Resampling.BILINEAR), np.float32) for file in files])
  images = (pixels[:, None] if pixels.ndim == 3 else pixels.transpose(0, 3, 1, 2)) / 127.5 - 1
  order = np.random.default_rng(0).permutation(len(labels))
  training, held_out = np.split(order, [len(order) * 4 // 5])
  labels = labels.astype(np.int32)
  return (images[training], labels[training]), (images[held_out], labels[held_out]), names


def main() -> int:
  """Gives 0 if held-out pictures are told apart better than by guessing."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--images", type=Path, help="folder with a folder of pictures for each class")
  parser.add_argument("--size", type=int, default=24, help="pixels of each side, to which pictures are scaled")
  parser.add_argument("--width", type=int, default=16, help="channels of the first layer; ResNet-18 has 64")
  parser.add_argument("--epochs", type=int, default=8)
  parser.add_argument("--batch", type=int, default=64)
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the checkpoint and the picture")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)

  (images, labels), (others, truth), names = load(args.images, args.size)
  Tensor.manual_seed(0)
  net = ResNet18(images.shape[1], len(names), args.width)
  opt = nn.optim.SGD(nn.state.get_parameters(net), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
  checkpoint, history = args.out / "resnet.safetensors", []
  if checkpoint.exists():
    nn.state.load_state_dict({"net": net, "opt": opt}, nn.state.safe_load(checkpoint), verbose=False)
    history = json.loads(nn.state.safe_load_metadata(checkpoint)[2]["__metadata__"]["history"])
    print(f"going on from {checkpoint}, after epoch {len(history)}")

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = net(augmented(x)).sparse_categorical_crossentropy(y, label_smoothing=0.1)
    loss.backward()
    opt.step()
    return loss.realize()

  guess = TinyJit(lambda x: net(x).argmax(1).realize())
  for epoch in range(len(history), args.epochs):
    opt.lr.assign([0.05 * (0.01 + 0.99 * (1 + math.cos(math.pi * epoch / args.epochs)) / 2)]).realize()
    losses = []
    loader = nn.datasets.DataLoader((images, labels), args.batch, shuffle=True, seed=epoch, drop_last=True)
    with Tensor.train(), tqdm(loader, f"epoch {epoch + 1}", unit=" steps", file=sys.stdout) as bar:
      for x, y in bar:
        losses.append(step(x, y).item())
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    parts = [others[i : i + args.batch] for i in range(0, len(others) - args.batch + 1, args.batch)]
    guesses = np.concatenate([guess(Tensor(part)).numpy() for part in parts])
    history.append((float(np.mean(losses)), float((guesses == truth[: len(guesses)]).mean())))
    state = nn.state.get_state_dict({"net": net, "opt": opt})
    nn.state.safe_save(state, checkpoint, {"history": json.dumps(history)})
    print(f"epoch {epoch + 1}: loss {history[-1][0]:.3f}, {history[-1][1]:.2%} of {len(guesses)} held-out pictures")

  figure = Figure(figsize=(6, 3.5), layout="constrained")
  left = figure.subplots()
  right = left.twinx()
  epochs = range(1, len(history) + 1)
  left.plot(epochs, [loss for loss, _ in history], "o-", color="tab:blue")
  right.plot(epochs, [100 * share for _, share in history], "s-", color="tab:orange")
  left.set(xlabel="epoch", title="ResNet-18 on handwritten digits" if args.images is None else "ResNet-18")
  left.set_ylabel("loss of the training pictures", color="tab:blue")
  right.set_ylabel("held-out pictures told apart, %", color="tab:orange")
  figure.savefig(args.out / "resnet.png", dpi=110)
  print(f"drew {args.out / 'resnet.png'}")
  return 0 if history[-1][1] > 1.5 / len(names) else 1


if __name__ == "__main__":
  sys.exit(main())
