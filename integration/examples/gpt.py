"""Trains a small transformer on English text, letter by letter, and lets it write.

    hatch run python integration/examples/gpt.py    # --help lists the options

The text is the reference of Python's language that every Python brings (`pydoc_data/topics.py`, 460,000 letters), or a
file of your own (`--text`). Prints samples on the way, draws the loss of the training text and of held-out text into
`out/gpt.png`. The model is GPT-2's (Radford et al., 2019), with letters for words.
"""

import argparse
import math
import pydoc_data.topics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tqdm import trange

from tiny_tensor import Tensor, TinyJit, nn


class Block:
  """Attention to the letters before, then a network of two layers, each added to its input: `(n, length, width)`."""

  def __init__(self, width: int, heads: int) -> None:
    self.heads = heads
    self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

  def __call__(self, x: Tensor) -> Tensor:
    n, length, width = x.shape
    split = self.qkv(self.norm1(x)).reshape(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
    attended = split[0].scaled_dot_product_attention(split[1], split[2], is_causal=True)
    x = x + self.out(attended.transpose(1, 2).reshape(n, length, width))
    return x + self.down(self.up(self.norm2(x)).gelu())


class GPT:
  """Letters `(n, length)` → scores of each next letter `(n, length, letters)`."""

  def __init__(self, letters: int, context: int, width: int, heads: int, layers: int) -> None:
    self.context = context
    self.letter, self.position = nn.Embedding(letters, width), nn.Embedding(context, width)
    self.blocks = [Block(width, heads) for _ in range(layers)]
    self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters)

  def __call__(self, letters: Tensor) -> Tensor:
    x = self.letter(letters) + self.position(Tensor.arange(letters.shape[1]))
    for block in self.blocks:
      x = block(x)
    return self.head(self.norm(x))


def batch(text: np.ndarray, rng: np.random.Generator, n: int, context: int) -> tuple[Tensor, Tensor]:
  """`n` pieces of the text, and the same pieces one letter on: what is to be predicted."""
  places = rng.integers(0, len(text) - context, n)[:, None] + np.arange(context)
  return Tensor(text[places]), Tensor(text[places + 1])


def write(
  scores: Callable[[Tensor], Tensor], alphabet: str, context: int, start: str, length: int, rng: np.random.Generator
) -> str:
  """Goes on from `start`, each letter drawn by its probability. One size of window: one graph for every letter."""
  letters = [alphabet.index(c) for c in start]
  for _ in range(length):
    window = letters[-context:]  # what lies behind its last letter is not looked at
    row = scores(Tensor(np.array(window + [0] * (context - len(window)), np.int32)[None])).numpy()[0, len(window) - 1]
    chance = np.exp(row - row.max(), dtype=np.float64)
    letters.append(int(rng.choice(len(alphabet), p=chance / chance.sum())))
  return "".join(alphabet[i] for i in letters)


def draw(losses: list[float], held_out: list[tuple[int, float]], path: Path) -> None:
  axes = (figure := Figure(figsize=(7, 4), layout="constrained")).subplots()
  axes.plot(losses, linewidth=0.8, label="training text")
  axes.plot(*zip(*held_out), "o-", label="held-out text")
  axes.set(xlabel="step", ylabel="cross entropy, bits per letter", title="gpt.py: a transformer learns English")
  axes.grid(alpha=0.3)
  axes.legend()
  figure.savefig(path, dpi=110)


def main() -> int:
  """Gives 0 if held-out text is predicted better than by the frequencies of letters."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--text", type=Path, help="a text file in UTF-8 (default: Python's language reference)")
  parser.add_argument("--steps", type=int, default=400)
  parser.add_argument("--batch", type=int, default=16)
  parser.add_argument("--context", type=int, default=128, help="letters that the model sees")
  parser.add_argument("--width", type=int, default=128)
  parser.add_argument("--layers", type=int, default=4)
  parser.add_argument("--sample", type=int, default=300, help="letters to write in the end")
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture and the weights")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)

  text = args.text.read_text("utf-8") if args.text else "\n".join(pydoc_data.topics.topics.values())
  alphabet = "".join(sorted(set(text)))
  numbers = np.array([alphabet.index(c) for c in text], np.int32)
  training, held_out = np.split(numbers, [len(numbers) * 9 // 10])
  frequencies = np.bincount(numbers) / len(numbers)
  known = -float((frequencies * np.log2(frequencies)).sum())
  Tensor.manual_seed(0)
  model = GPT(len(alphabet), args.context, args.width, 4, args.layers)
  weights = nn.state.get_parameters(model)
  print(f"{len(text):,} letters, {len(alphabet)} of them different; {sum(w.numel() for w in weights):,} weights")

  opt = nn.optim.AdamW(weights, lr=1e-3, weight_decay=0.01)
  schedule = nn.schedule.OneCycleLR(opt, max_lr=3e-3, total_steps=args.steps, pct_start=0.1)
  rng = np.random.default_rng(0)

  @TinyJit
  def step(x: Tensor, y: Tensor) -> Tensor:
    opt.zero_grad()
    loss = model(x).sparse_categorical_crossentropy(y) / math.log(2)
    loss.backward()
    opt.step()
    return loss.realize()

  scores = TinyJit(lambda letters: model(letters).realize())
  judge = TinyJit(lambda x, y: (model(x).sparse_categorical_crossentropy(y) / math.log(2)).realize())
  losses: list[float] = []
  checked: list[tuple[int, float]] = []
  bar = trange(args.steps, unit=" steps", file=sys.stdout)
  for i in bar:
    with Tensor.train():
      losses.append(step(*batch(training, rng, args.batch, args.context)).item())
      schedule.step()  # outside: what is captured does not count steps in Python
    if i % 100 == 99 or i == args.steps - 1:
      same = np.random.default_rng(1)  # the same pieces every time
      checked.append((i, float(np.mean([judge(*batch(held_out, same, 16, args.context)).item() for _ in range(8)]))))
      sample = write(scores, alphabet, args.context, "The ", min(60, args.sample), rng)
      bar.write(f"step {i + 1}: {checked[-1][1]:.2f} bits per held-out letter. {sample!r}")
    bar.set_postfix(loss=f"{losses[-1]:.2f}")

  print(write(scores, alphabet, args.context, "The ", args.sample, rng))
  draw(losses, checked, args.out / "gpt.png")
  nn.state.safe_save(nn.state.get_state_dict(model), args.out / "gpt.safetensors")
  found = checked[-1][1]
  print(f"{found:.2f} bits per held-out letter; their frequencies alone have {known:.2f}")
  print(f"drew {args.out / 'gpt.png'}")
  return 0 if found < known else 1


if __name__ == "__main__":
  sys.exit(main())
