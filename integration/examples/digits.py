"""Trains a small convolutional network on scikit-learn's handwritten digits, and shows what it learnt.

    hatch run demo

1,797 real images of 8×8 pixels (Alpaydin & Kaynak, 1998). Writes the weights to `out/digits.safetensors`, loads them
into a fresh model, and draws test images with their predicted and true labels into `out/digits.png`.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from sklearn.datasets import load_digits
from tqdm import tqdm

from tiny_tensor import Device, Tensor, TinyJit, nn

Arrays = tuple[np.ndarray, np.ndarray]
HELD_OUT = 360  # a fifth of the images


class Net:
  """Two convolutions, each with batch normalisation and a pool, and a linear layer: `(n, 1, 8, 8)` → `(n, 10)`."""

  def __init__(self) -> None:
    self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
    self.norm1 = nn.BatchNorm(16)
    self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
    self.norm2 = nn.BatchNorm(32)
    self.linear = nn.Linear(32 * 2 * 2, 10)

  def __call__(self, x: Tensor) -> Tensor:
    x = self.norm1(self.conv1(x)).relu().max_pool2d((2, 2))
    x = self.norm2(self.conv2(x)).relu().max_pool2d((2, 2))
    return self.linear(x.flatten(1))


def load() -> tuple[Arrays, Arrays]:
  """(images, labels) to train on and (images, labels) held out; images are float32 `(n, 1, 8, 8)` in [0, 1]."""
  digits = load_digits()
  order = np.random.default_rng(0).permutation(len(digits.target))
  images = (digits.images / 16).astype(np.float32)[order, None]
  labels = digits.target.astype(np.int32)[order]
  return (images[HELD_OUT:], labels[HELD_OUT:]), (images[:HELD_OUT], labels[:HELD_OUT])


def train(net: Net, data: Arrays, steps: int, batch: int) -> None:
  """`steps` steps of Adam on random batches, with the whole step captured as one graph."""
  images, labels = data
  opt = nn.optim.Adam(nn.state.get_parameters(net), lr=0.005)
  rng = np.random.default_rng(1)

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y)
    loss.backward()
    opt.step()
    return loss.realize()

  with Tensor.train(), tqdm(total=steps * batch, unit=" images", unit_scale=True, file=sys.stdout) as bar:
    for i in range(steps):
      if i == steps * 2 // 3:
        opt.lr.assign(opt.lr * 0.2).realize()
      chosen = rng.choice(len(labels), batch, replace=False)
      loss = step(Tensor(images[chosen]), Tensor(labels[chosen]))
      bar.update(batch)
      if i % 10 == 0 or i == steps - 1:  # reading the loss waits for the device
        bar.set_postfix(loss=f"{loss.item():.4f}")


def predict(net: Net, images: np.ndarray) -> np.ndarray:
  """The label that the network gives to each image."""
  return net(Tensor(images)).argmax(axis=1).numpy()


def draw(images: np.ndarray, predicted: np.ndarray, labels: np.ndarray, path: Path, columns: int = 10) -> None:
  """Draws each image over "predicted / true", the wrong ones in red."""
  scale, gap, text = 6, 12, 16
  cell_w, cell_h = 8 * scale + gap, 8 * scale + text + gap
  rows = -(-len(images) // columns)
  sheet = Image.new("RGB", (columns * cell_w + gap, rows * cell_h + gap), "white")
  pen = ImageDraw.Draw(sheet)
  for i, (image, guess, label) in enumerate(zip(images, predicted, labels)):
    left, top = gap + i % columns * cell_w, gap + i // columns * cell_h
    pixels = Image.fromarray(np.uint8(255 - image[0] * 255)).resize((8 * scale, 8 * scale), Image.Resampling.NEAREST)
    sheet.paste(pixels, (left, top))
    colour = "#187018" if guess == label else "#c01010"
    pen.rectangle((left - 1, top - 1, left + 8 * scale, top + 8 * scale), outline=colour)
    pen.text((left + 4 * scale, top + 8 * scale + 3), f"{guess} / {label}", fill=colour, anchor="ma")
  sheet.save(path)


def main() -> int:
  """Gives 0 if the network learnt the digits, the file holds it, and both models agree."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--steps", type=int, default=300)
  parser.add_argument("--batch", type=int, default=128)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the weights and the picture")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)
  start = time.perf_counter()

  Tensor.manual_seed(args.seed)
  training, (images, labels) = load()
  net = Net()
  print(f"training on {len(training[1])} images, {len(labels)} held out, device {Device.DEFAULT}")
  train(net, training, args.steps, args.batch)
  predicted = predict(net, images)
  accuracy = float((predicted == labels).mean())
  print(f"accuracy on {len(labels)} held-out images: {accuracy:.2%}")

  weights = args.out / "digits.safetensors"
  nn.state.safe_save(nn.state.get_state_dict(net), weights)
  fresh = Net()
  nn.state.load_state_dict(fresh, nn.state.safe_load(weights), verbose=False)
  agree = bool((predict(fresh, images) == predicted).all())
  print(f"saved {weights}; a fresh model that loads it {'agrees' if agree else 'DOES NOT AGREE'} on every image")

  # the mistakes first, so that they are in the picture
  shown = np.argsort(predicted == labels, kind="stable")[:60]
  draw(images[shown], predicted[shown], labels[shown], args.out / "digits.png")
  print(f"drew {len(shown)} of them into {args.out / 'digits.png'}; {time.perf_counter() - start:.1f} s in all")
  return 0 if agree and accuracy >= 0.98 else 1


if __name__ == "__main__":
  sys.exit(main())
