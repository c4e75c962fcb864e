"""Turns sentences into vectors with a BERT encoder, and shows which of them are alike.

    hatch run python integration/examples/embeddings.py    # --help lists the options

The model is a folder as Hugging Face has it: `config.json`, `model.safetensors`, `tokenizer.json` (that file needs
`pip install tokenizers`); sentence-transformers/all-MiniLM-L6-v2 is a good one. Without a folder it has MiniLM's size
and random weights: then sentences are alike that share words. The vector of a sentence is the mean of its tokens'
(Reimers & Gurevych, 2019), of length 1. Draws `out/embeddings.png`.
"""

import argparse
import json
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

from tiny_tensor import Tensor, TinyJit, nn

MINILM: dict[str, Any] = {
  "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536,
  "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
}  # fmt: skip
SENTENCES = [
  "The cat sleeps on the warm roof.",
  "A cat is asleep on top of the house.",
  "Stock prices fell sharply on Monday.",
  "On Monday stock prices fell.",
  "The orchestra has a new violin.",
  "She plays the violin in an orchestra.",
]


class Layer:
  """Attention to all tokens, then a network of two layers; each is added to its input and normalised."""

  def __init__(self, config: dict[str, Any]) -> None:
    width, inner, eps = config["hidden_size"], config["intermediate_size"], config["layer_norm_eps"]
    self.heads = config["num_attention_heads"]
    self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
    self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
    self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)

  def __call__(self, x: Tensor, visible: Tensor) -> Tensor:
    n, length, width = x.shape
    shape = (n, length, self.heads, width // self.heads)
    q, k, v = (part(x).reshape(shape).transpose(1, 2) for part in (self.query, self.key, self.value))
    attended = q.scaled_dot_product_attention(k, v, attn_mask=visible)
    x = self.norm1(x + self.out(attended.transpose(1, 2).reshape(n, length, width)))
    return self.norm2(x + self.down(self.up(x).gelu(approximate="none")))


NAMES = {  # of the parts of a layer, at Hugging Face
  "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
  "out": "attention.output.dense", "norm1": "attention.output.LayerNorm", "up": "intermediate.dense",
  "down": "output.dense", "norm2": "output.LayerNorm",
}  # fmt: skip


class Bert:
  """Tokens `(n, length)` and which of them are there → vectors `(n, hidden_size)` of length 1."""

  def __init__(self, config: dict[str, Any]) -> None:
    width = config["hidden_size"]
    self.word, self.kind = nn.Embedding(config["vocab_size"], width), nn.Embedding(config["type_vocab_size"], width)
    self.position = nn.Embedding(config["max_position_embeddings"], width)
    self.norm = nn.LayerNorm(width, config["layer_norm_eps"])
    self.layers = [Layer(config) for _ in range(config["num_hidden_layers"])]

  def load(self, weights: dict[str, Tensor]) -> None:
    """Takes Hugging Face's names; a prefix `bert.` and parts that the vector does not depend on are left aside."""
    weights = {name.removeprefix("bert."): value for name, value in weights.items()}
    ours = {"norm": "embeddings.LayerNorm", "kind": "embeddings.token_type_embeddings"}
    ours |= {part: f"embeddings.{part}_embeddings" for part in ("word", "position")}
    for i in range(len(self.layers)):
      ours |= {f"layers.{i}.{part}": f"encoder.layer.{i}.{name}" for part, name in NAMES.items()}
    state = {}
    for name in nn.state.get_state_dict(self):
      part, _, kind = name.rpartition(".")
      state[name] = weights[f"{ours[part]}.{kind}"]
    nn.state.load_state_dict(self, state, verbose=False)

  def __call__(self, tokens: Tensor, there: Tensor) -> Tensor:
    words, places = self.word(tokens), self.position(Tensor.arange(tokens.shape[1]))
    x = self.norm(words + self.kind(tokens.zeros_like()) + places)
    for layer in self.layers:
      x = layer(x, there.unsqueeze(1).unsqueeze(1))
    total = (x * there.unsqueeze(-1)).sum(1)  # of the tokens that are there; a mean but for its length
    return total / total.square().sum(-1, keepdim=True).sqrt()


def tokenised(sentences: list[str], folder: Path | None, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
  """(tokens, which of them are there), int32 and bool of `(n, the longest)`."""
  if folder is None:  # a number for each word
    rows = [[zlib.crc32(word.encode()) % vocabulary for word in re.findall(r"\w+", s.lower())] for s in sentences]
  else:
    from tokenizers import Tokenizer

    rows = [code.ids for code in Tokenizer.from_file(str(folder / "tokenizer.json")).encode_batch(sentences)]
  there = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
  tokens = np.zeros(there.shape, np.int32)
  tokens[there] = np.concatenate(rows)
  return tokens, there


def main() -> int:
  """Gives 0 if a sentence has the same vector alone and among others."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("sentences", nargs="*", default=SENTENCES)
  parser.add_argument("--model", type=Path, help="folder with config.json, model.safetensors and tokenizer.json")
  parser.add_argument("--layers", type=int, help="only so many of the model's layers")
  parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
  args = parser.parse_args()
  args.out.mkdir(parents=True, exist_ok=True)

  config = dict(MINILM) if args.model is None else json.loads((args.model / "config.json").read_text("utf-8"))
  config["num_hidden_layers"] = args.layers or config["num_hidden_layers"]
  Tensor.manual_seed(0)
  model = Bert(config)
  if args.model:
    model.load(nn.state.safe_load(args.model / "model.safetensors"))
  else:  # what all sentences have in common would outweigh the words
    for part in (model.position, model.kind):
      part.weight.assign(part.weight.zeros_like())
  tokens, there = tokenised(args.sentences, args.model, config["vocab_size"])
  encode = TinyJit(lambda tokens, there: model(tokens, there).realize())  # one compiled graph for all sentences
  rows = tqdm([slice(i, i + 1) for i in range(len(tokens))], unit=" sentences", file=sys.stdout)
  vectors = np.concatenate([encode(Tensor(tokens[row]), Tensor(there[row])).numpy() for row in rows])
  alike = vectors @ vectors.T
  for i, sentence in enumerate(args.sentences):
    others = np.where(np.arange(len(alike)) == i, -2, alike[i])
    print(f"{sentence}\n  {others.max():.2f}  {args.sentences[int(others.argmax())]}")

  axes = (figure := Figure(figsize=(8, 4), layout="constrained")).subplots()
  figure.colorbar(axes.imshow(alike, cmap="viridis"), ax=axes, label="cosine of the angle")
  axes.set(xticks=[], yticks=range(len(alike)), yticklabels=args.sentences)
  figure.savefig(args.out / "embeddings.png", dpi=110)
  print(f"drew {args.out / 'embeddings.png'}")
  together = model(Tensor(tokens), Tensor(there)).numpy()
  return 0 if np.allclose(together, vectors, atol=1e-3) else 1


if __name__ == "__main__":
  sys.exit(main())
