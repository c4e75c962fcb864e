"""The models among the workloads, written once for every `Library`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from suite.library import Array, Library, Tensor

Weights = dict[str, Array]
RESNET18 = ((64, 1), (128, 2), (256, 2), (512, 2))  # (channels, stride) of the stages, of two blocks each


def gaussian(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
  """float32 with the given standard deviation."""
  return (rng.standard_normal(shape) * scale).astype(np.float32)


def convolution(rng: np.random.Generator, out: int, into: int, size: int) -> Array:
  """Weights that keep the variance of what comes after a ReLU."""
  return gaussian(rng, out, into, size, size, scale=(2 / (into * size * size)) ** 0.5)


def norm_weights(rng: np.random.Generator, name: str, channels: int, with_statistics: bool) -> Weights:
  """Weights, and statistics if asked for, of a batch normalisation."""
  weights = {
    f"{name}.weight": 1 + gaussian(rng, channels, scale=0.1),
    f"{name}.bias": gaussian(rng, channels, scale=0.1),
  }
  if with_statistics:
    weights[f"{name}.mean"] = gaussian(rng, channels, scale=0.1)
    weights[f"{name}.var"] = rng.uniform(0.5, 1.5, channels).astype(np.float32)
  return weights


def norm(lib: Library, w: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
  """Batch normalisation with the weights of that name."""
  return lib.batch_norm(x, w[f"{name}.weight"], w[f"{name}.bias"], w.get(f"{name}.mean"), w.get(f"{name}.var"))


# *** ResNet-18 (He et al. 2016) ***


def resnet_blocks() -> Iterator[tuple[str, int, int, int]]:
  """(name, channels in, channels out, stride) of each block."""
  channels = RESNET18[0][0]
  for stage, (width, stride) in enumerate(RESNET18):
    for number in range(2):
      yield f"{stage}.{number}", channels, width, 1 if number else stride
      channels = width


def resnet18_weights(rng: np.random.Generator, first: int = 7, classes: int = 1000, fixed: bool = True) -> Weights:
  """Random weights, the first of windows of so many places, and statistics if these are `fixed`."""
  w = {"first": convolution(rng, 64, 3, first), **norm_weights(rng, "first norm", 64, fixed)}
  for name, into, out, stride in resnet_blocks():
    for part, source in (("a", into), ("b", out)):
      w[f"{name}{part}"] = convolution(rng, out, source, 3)
      w |= norm_weights(rng, f"{name}{part} norm", out, fixed)
    if stride != 1 or into != out:
      w[f"{name}around"] = convolution(rng, out, into, 1)
      w |= norm_weights(rng, f"{name}around norm", out, fixed)
  w["head.weight"] = gaussian(rng, RESNET18[-1][0], classes, scale=0.05)
  w["head.bias"] = gaussian(rng, classes, scale=0.05)
  return w


def resnet18(lib: Library, w: Mapping[str, Tensor], x: Tensor) -> Tensor:
  """Images → 1000 logits, with fixed statistics."""
  x = lib.relu(norm(lib, w, "first norm", lib.conv2d(x, w["first"], stride=2, padding=3)))
  return resnet18_stages(lib, w, lib.max_pool(x, 3, 2, padding=1))


def resnet18_loss(lib: Library, w: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
  """Small images and labels → cross-entropy; the first layer leaves their size."""
  x = lib.relu(norm(lib, w, "first norm", lib.conv2d(images, w["first"], padding=1)))
  return lib.cross_entropy(resnet18_stages(lib, w, x), labels)


def resnet18_stages(lib: Library, w: Mapping[str, Tensor], x: Tensor) -> Tensor:
  """What comes after the first layer → logits."""
  for name, _, _, stride in resnet_blocks():
    y = lib.relu(norm(lib, w, f"{name}a norm", lib.conv2d(x, w[f"{name}a"], stride=stride, padding=1)))
    y = norm(lib, w, f"{name}b norm", lib.conv2d(y, w[f"{name}b"], padding=1))
    if f"{name}around" in w:
      x = norm(lib, w, f"{name}around norm", lib.conv2d(x, w[f"{name}around"], stride=stride))
    x = lib.relu(x + y)
  return lib.mean_of_image(x) @ w["head.weight"] + w["head.bias"]


def resnet18_flops(image: int) -> float:
  """Operations of the convolutions for one image."""
  size = image // 2
  return 2.0 * 64 * 3 * 49 * size * size + resnet18_stages_flops(size // 2)


def resnet18_stages_flops(size: int) -> float:
  """The same of all but the first layer, from images of so many places a side on."""
  total = 0.0
  for _, into, out, stride in resnet_blocks():
    size //= stride
    total += 2.0 * size * size * out * (9 * into + 9 * out + (into if stride != 1 or into != out else 0))
  return total


def resnet18_training_flops(batch: int, image: int) -> float:
  """Operations of the convolutions of a training step; the gradient of the images is not needed."""
  return batch * (2 * 2.0 * 64 * 3 * 9 * image * image + 3 * resnet18_stages_flops(image))


# *** a small convolutional network for MNIST ***


def mnist_weights(rng: np.random.Generator) -> Weights:
  """Random weights."""
  w = {"1": convolution(rng, 32, 1, 5), "2": convolution(rng, 32, 32, 5)}
  w |= {"3": convolution(rng, 64, 32, 3), "4": convolution(rng, 64, 64, 3)}
  w |= norm_weights(rng, "norm 2", 32, False) | norm_weights(rng, "norm 4", 64, False)
  return w | {"head.weight": gaussian(rng, 576, 10, scale=0.04), "head.bias": gaussian(rng, 10, scale=0.04)}


def mnist_loss(lib: Library, w: Mapping[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
  """`(n, 1, 28, 28)` and labels → cross-entropy."""
  x = lib.relu(lib.conv2d(images, w["1"]))
  x = lib.relu(lib.conv2d(x, w["2"]))
  x = lib.max_pool(norm(lib, w, "norm 2", x), 2, 2)
  x = lib.relu(lib.conv2d(x, w["3"]))
  x = lib.relu(lib.conv2d(x, w["4"]))
  x = lib.max_pool(norm(lib, w, "norm 4", x), 2, 2)
  return lib.cross_entropy(x.reshape(-1, 576) @ w["head.weight"] + w["head.bias"], labels)


def mnist_flops(batch: int) -> float:
  """Operations of the convolutions, forward and backward; the gradient of the images is not needed."""
  first = 24 * 24 * 25 * 32
  rest = 20 * 20 * 25 * 32 * 32 + 8 * 8 * 9 * 32 * 64 + 6 * 6 * 9 * 64 * 64
  return 2.0 * batch * (2 * first + 3 * rest)


# *** a small perceptron ***


def mlp_weights(rng: np.random.Generator, sizes: tuple[int, ...]) -> Weights:
  """Random weights of linear layers between these sizes."""
  w = {}
  for number, (into, out) in enumerate(zip(sizes, sizes[1:])):
    w[f"{number}.weight"] = gaussian(rng, into, out, scale=(2 / into) ** 0.5)
    w[f"{number}.bias"] = gaussian(rng, out, scale=0.1)
  return w


def mlp(lib: Library, w: Mapping[str, Tensor], x: Tensor) -> Tensor:
  """Linear layers with ReLU between them."""
  layers = len(w) // 2
  for number in range(layers):
    x = x @ w[f"{number}.weight"] + w[f"{number}.bias"]
    if number < layers - 1:
      x = lib.relu(x)
  return x


# *** MiniLM (Wang et al. 2020): the encoder of BERT (Devlin et al. 2019), small ***


@dataclass(frozen=True)
class BertSize:
  """Sizes of an encoder; those of all-MiniLM-L6-v2."""

  layers: int = 6
  width: int = 384
  heads: int = 12
  hidden: int = 1536
  vocabulary: int = 30522


def bert_weights(rng: np.random.Generator, size: BertSize, tokens: int) -> Weights:
  """Random weights, for texts of so many tokens."""
  w = {"words": gaussian(rng, size.vocabulary, size.width), "places": gaussian(rng, tokens, size.width)}
  norms = ["embedded"]
  for layer in range(size.layers):
    linears = dict.fromkeys(("query", "key", "value", "out"), (size.width, size.width))
    linears |= {"up": (size.width, size.hidden), "down": (size.hidden, size.width)}
    for name, shape in linears.items():
      w[f"{layer}.{name}"] = gaussian(rng, *shape, scale=shape[0] ** -0.5)
      w[f"{layer}.{name}.bias"] = gaussian(rng, shape[1], scale=0.1)
    norms += [f"{layer}.attended", f"{layer}.fed"]
  for name in norms:
    w[name], w[f"{name}.bias"] = 1 + gaussian(rng, size.width, scale=0.1), gaussian(rng, size.width, scale=0.1)
  return w


def bert(lib: Library, w: Mapping[str, Tensor], ids: Tensor, size: BertSize) -> Tensor:
  """Numbers of tokens `(batch, tokens)` → a vector for each text, the mean over its tokens."""
  return transformer(lib, w, ids, size, causal=False).mean(1)


def transformer(lib: Library, w: Mapping[str, Tensor], ids: Tensor, size: BertSize, causal: bool) -> Tensor:
  """Numbers of tokens `(batch, tokens)` → a vector for each."""
  batch, tokens = ids.shape

  def linear(x: Tensor, name: str) -> Tensor:
    return x @ w[name] + w[f"{name}.bias"]

  def normed(x: Tensor, name: str) -> Tensor:
    return lib.layer_norm(x) * w[name] + w[f"{name}.bias"]

  def heads(x: Tensor) -> Tensor:
    return lib.swapped(x.reshape(batch, tokens, size.heads, size.width // size.heads), 1, 2)

  x = normed(w["words"][ids] + w["places"], "embedded")
  for layer in range(size.layers):
    q, k, v = (heads(linear(x, f"{layer}.{name}")) for name in ("query", "key", "value"))
    attended = lib.swapped(lib.attention(q, k, v, causal=causal), 1, 2).reshape(batch, tokens, size.width)
    x = normed(x + linear(attended, f"{layer}.out"), f"{layer}.attended")
    x = normed(x + linear(lib.gelu(linear(x, f"{layer}.up")), f"{layer}.down"), f"{layer}.fed")
  return x


def language_model_weights(rng: np.random.Generator, size: BertSize, tokens: int) -> Weights:
  """Random weights of a transformer, and of a layer that gives each token of the vocabulary a logit."""
  return bert_weights(rng, size, tokens) | {"head": gaussian(rng, size.width, size.vocabulary, scale=0.05)}


def language_model_loss(
  lib: Library, w: Mapping[str, Tensor], ids: Tensor, following: Tensor, size: BertSize
) -> Tensor:
  """Tokens `(batch, tokens)` and those that follow them `(batch · tokens,)` → cross-entropy."""
  x = transformer(lib, w, ids, size, causal=True)
  return lib.cross_entropy(x.reshape(-1, size.width) @ w["head"], following)


def bert_flops(size: BertSize, batch: int, tokens: int) -> float:
  """Operations of the matrix products."""
  each = 4 * size.width**2 + 2 * size.width * size.hidden + 2 * tokens * size.width
  return 2.0 * batch * tokens * size.layers * each
