"""ResNet-50 and a Llama-style transformer, forward and backward, for every library that has tinygrad's public names.

The code is written once: a `Library` says where `Tensor`, `nn` and `dtypes` come from, so what two libraries are given
to schedule and to generate code for is the same program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Tensor = Any


@dataclass(frozen=True)
class Library:
  """The three names that the models use of a library."""

  Tensor: Any
  nn: Any
  dtypes: Any


@dataclass(frozen=True)
class ResNetSize:
  """`stages`: (channels, blocks, stride) of each; images are square."""

  batch: int = 32
  image: int = 224
  classes: int = 1000
  stages: tuple[tuple[int, int, int], ...] = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


@dataclass(frozen=True)
class LlamaSize:
  """Sizes of Llama 3.2 1B with a vocabulary of 32,000, and of the batch."""

  layers: int = 16
  dim: int = 2048
  heads: int = 32
  kv_heads: int = 8
  hidden: int = 8192
  vocabulary: int = 32000
  batch: int = 4
  tokens: int = 512


class Bottleneck:
  """1×1, 3×3 and 1×1 convolutions around which the input goes unchanged, or through a 1×1 convolution."""

  def __init__(self, nn: Any, channels: int, width: int, stride: int, project: bool) -> None:
    self.conv1, self.norm1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
    self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
    self.norm2 = nn.BatchNorm2d(width)
    self.conv3, self.norm3 = nn.Conv2d(width, width * 4, 1, bias=False), nn.BatchNorm2d(width * 4)
    self.around: list[Any] = []
    if project:
      self.around = [nn.Conv2d(channels, width * 4, 1, stride=stride, bias=False), nn.BatchNorm2d(width * 4)]

  def __call__(self, x: Tensor) -> Tensor:
    y = self.norm1(self.conv1(x)).relu()
    y = self.norm2(self.conv2(y)).relu()
    return (self.norm3(self.conv3(y)) + x.sequential(self.around)).relu()


class ResNet:
  """Residual network with bottleneck blocks (He et al. 2016, stride in the 3×3 convolution); 50 layers by default."""

  def __init__(self, nn: Any, size: ResNetSize) -> None:
    channels = size.stages[0][0]
    self.conv, self.norm = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(channels)
    self.blocks: list[Bottleneck] = []
    for width, count, stride in size.stages:
      for number in range(count):
        self.blocks.append(Bottleneck(nn, channels, width, 1 if number else stride, number == 0))
        channels = width * 4
    self.head = nn.Linear(channels, size.classes)

  def __call__(self, x: Tensor) -> Tensor:
    y = self.norm(self.conv(x)).relu().max_pool2d((3, 3), 2, padding=1)
    return self.head(y.sequential(self.blocks).mean((2, 3)))


class Block:
  """Grouped-query attention with rotary positions, and a gated feed-forward part."""

  def __init__(self, nn: Any, size: LlamaSize) -> None:
    self.heads, self.kv_heads, self.width = size.heads, size.kv_heads, size.dim // size.heads
    self.query = nn.Linear(size.dim, size.dim, bias=False)
    self.key = nn.Linear(size.dim, size.kv_heads * self.width, bias=False)
    self.value = nn.Linear(size.dim, size.kv_heads * self.width, bias=False)
    self.out = nn.Linear(size.dim, size.dim, bias=False)
    self.gate, self.up = (nn.Linear(size.dim, size.hidden, bias=False) for _ in range(2))
    self.down = nn.Linear(size.hidden, size.dim, bias=False)
    self.attention_norm, self.feed_norm = nn.RMSNorm(size.dim), nn.RMSNorm(size.dim)

  def __call__(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    batch, tokens, dim = x.shape
    h = self.attention_norm(x)

    def split(projected: Tensor, heads: int) -> Tensor:
      return projected.reshape(batch, tokens, heads, self.width).transpose(1, 2)

    q = rotate(split(self.query(h), self.heads), cos, sin)
    k = rotate(split(self.key(h), self.kv_heads), cos, sin).repeat_interleave(self.heads // self.kv_heads, dim=1)
    v = split(self.value(h), self.kv_heads).repeat_interleave(self.heads // self.kv_heads, dim=1)
    attended = q.scaled_dot_product_attention(k, v, is_causal=True)
    x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, dim))
    h = self.feed_norm(x)
    return x + self.down(self.gate(h).silu() * self.up(h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
  """Rotary position embedding (Su et al. 2021) of pairs half a head apart."""
  a, b = x.chunk(2, dim=-1)
  return (a * cos - b * sin).cat(b * cos + a * sin, dim=-1)


class Llama:
  """A decoder-only transformer as in Llama (Touvron et al. 2023)."""

  def __init__(self, library: Library, size: LlamaSize) -> None:
    nn = library.nn
    self.embedding = nn.Embedding(size.vocabulary, size.dim)
    self.blocks = [Block(nn, size) for _ in range(size.layers)]
    self.norm, self.head = nn.RMSNorm(size.dim), nn.Linear(size.dim, size.vocabulary, bias=False)
    self._tensor, self._width = library.Tensor, size.dim // size.heads

  def __call__(self, tokens: Tensor) -> Tensor:
    arange, count = self._tensor.arange, tokens.shape[1]
    frequency = 1.0 / (10000.0 ** (arange(0, self._width, 2) / self._width))
    angle = arange(count).reshape(count, 1) * frequency.reshape(1, -1)
    x = self.embedding(tokens)
    for block in self.blocks:
      x = block(x, angle.cos(), angle.sin())
    return self.head(self.norm(x))


def with_empty_weights(library: Library, model: Any) -> Any:
  """The model with buffers in the place of its weights' initial values: drawing those is no part of a step."""
  for name, weight in library.nn.state.get_state_dict(model).items():
    *path, last = name.split(".")
    owner = model
    for part in path:
      owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
    setattr(owner, last, library.Tensor.empty(*weight.shape, dtype=weight.dtype))
  return model


def resnet50(library: Library, size: ResNetSize) -> list[Tensor]:
  """Loss and gradients of all weights for a batch of images, not computed yet."""
  library.Tensor.training = True
  model = with_empty_weights(library, ResNet(library.nn, size))
  statistics = ("running_mean", "running_var", "num_batches_tracked")
  weights = [w for name, w in library.nn.state.get_state_dict(model).items() if not name.endswith(statistics)]
  images = library.Tensor.empty(size.batch, 3, size.image, size.image)
  labels = library.Tensor.empty(size.batch, dtype=library.dtypes.int32)
  loss = model(images).sparse_categorical_crossentropy(labels)
  return [loss, *loss.gradient(*weights)]


def llama(library: Library, size: LlamaSize) -> list[Tensor]:
  """Loss and gradients of all weights for a batch of texts, not computed yet."""
  model = with_empty_weights(library, Llama(library, size))
  weights = library.nn.state.get_state_dict(model).values()
  tokens, following = (library.Tensor.empty(size.batch, size.tokens, dtype=library.dtypes.int32) for _ in range(2))
  logits = model(tokens).reshape(size.batch * size.tokens, -1)
  loss = logits.sparse_categorical_crossentropy(following.reshape(-1))
  return [loss, *loss.gradient(*weights)]


def builder(name: str, small: bool, library: Library) -> Callable[[], list[Tensor]]:
  """What builds the graph of one model; `small` is for tests of the benchmark itself."""
  if name == "resnet50":
    resnet_size = ResNetSize(2, 32, 4, ((8, 2, 1), (16, 1, 2))) if small else ResNetSize()
    return lambda: resnet50(library, resnet_size)
  llama_size = LlamaSize(2, 32, 4, 2, 64, 50, 2, 8) if small else LlamaSize()
  return lambda: llama(library, llama_size)


MODELS = ("resnet50", "llama")
