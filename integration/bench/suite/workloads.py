"""The rows of the benchmark: the table of issue 4, a line or a function for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from suite import models
from suite.library import MATRIX_FUNCTIONS, Array, Library, Tensor
from suite.workload import Goal, Random, Roof, Weights, Workload

FMA = Roof("fma")
MATMUL = ("ours", "numpy", "numpy skylakex", "torch", "tinygrad")
STREAM = ("ours", "numpy", "numpy warm", "torch", "torch warm", "tinygrad")
COMPILED = (*STREAM, "torch compiled")
WINDOWS = ("ours", "torch", "torch channels last", "tinygrad")  # NumPy has no such functions
PEERS = ("ours", "numpy", "torch", "tinygrad")
IMAGES = ("ours", "numpy", "torch", "torch channels last", "tinygrad")
MODELS, TEXTS = (*IMAGES, "torch compiled"), (*PEERS, "torch compiled")
EAGER = ("torch", "torch channels last")


def normal(*shapes: tuple[int, ...]) -> Callable[[Random], tuple[Array, ...]]:
  """Standard normal float32 arrays."""
  return lambda rng: tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def product(lib: Library, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
  return a @ b


def product_transposed(lib: Library, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
  return a.T @ b.T


def matmul(name: str, a: tuple[int, ...], b: tuple[int, ...], fraction: float, transposed: bool = False) -> Workload:
  """fp32 matrix products; a transposed operand has this shape in memory."""
  flops = 2.0 * np.prod(a, dtype=float) * (b[-2] if transposed else b[-1])
  program = product_transposed if transposed else product
  return Workload(name, "matmul", program, normal(a, b), Goal("roof", fraction), flops, FMA, MATMUL)


def low_precision(name: str, n: int, program: Callable[..., Tensor], kind: str) -> Workload:
  """bf16 or int8; the lane "ours fp32" is the same product in float32. The roof is that of the machine's fastest
  instruction for such products, which for bf16 may be the multiply-add: `bench.py --roofs` tells."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    if kind == "int8":
      return tuple(rng.integers(-128, 128, (n, n), dtype=np.int8) for _ in range(2))
    return tuple(rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))

  goal, lanes = Goal("peers", 1.5, ("ours fp32",)), ("ours", "ours fp32", "torch", "tinygrad")
  tolerance = 0.0 if kind == "int8" else 2.0**-7
  roof = Roof(f"dot {kind}")
  return Workload(name, "low precision", program, inputs, goal, 2.0 * n**3, roof, lanes, tolerance=tolerance)


def product_bfloat16(lib: Library, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
  return lib.product_bfloat16(a, b)


def product_int8(lib: Library, w: Tensor, a: Tensor, b: Tensor) -> Tensor:
  return lib.product_int8(a, b)


def stream(
  name: str, roof: str, program: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...], passes: int,
  lanes: tuple[str, ...] = STREAM, tolerance: float = 1e-5,
) -> Workload:  # fmt: skip
  """`passes`: how many arrays of the first shape are read and written; a vector beside them does not count."""
  nbytes = 4 * passes * int(np.prod(shapes[0]))

  def inputs(rng: Random) -> tuple[Array, ...]:
    draw: Callable[..., Array] = rng.random if "sum" in name else rng.standard_normal
    return tuple(draw(shape, dtype=np.float32) for shape in shapes)

  return Workload(
    name, "memory", program, inputs, Goal("peers", 1), nbytes, Roof(roof, nbytes), lanes, tolerance=tolerance
  )


def relu_of_sum(lib: Library, w: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
  return lib.relu(a * b + c)


def total(lib: Library, w: Tensor, x: Tensor) -> Tensor:
  return x.sum()


def softmax(lib: Library, w: Tensor, x: Tensor) -> Tensor:
  return lib.softmax(x)


def layer_norm(lib: Library, w: Tensor, x: Tensor) -> Tensor:
  return lib.layer_norm(x)


def convolution(
  batch: int, into: int, size: int, out: int, window: int, stride: int = 1, group: str = "resnet50",
  goal: Goal | None = None,
) -> Workload:  # fmt: skip
  """Images of `size`², padded so that a stride of 1 keeps that."""
  name = f"conv {batch}×{into}×{size}² {out}×{into}×{window}²" + (f" /{stride}" if stride > 1 else "")
  flops = 2.0 * batch * out * into * window**2 * (-(-size // stride)) ** 2
  program = partial(call_convolution, stride=stride, padding=window // 2)
  inputs = normal((batch, into, size, size), (out, into, window, window))
  return Workload(name, group, program, inputs, goal or Goal("peers", 1, EAGER), flops, FMA, IMAGES)


def call_convolution(lib: Library, weights: Tensor, x: Tensor, w: Tensor, stride: int, padding: int) -> Tensor:
  return lib.conv2d(x, w, stride, padding)


def versus(
  name: str, group: str, program: Callable[..., Tensor], *shapes: tuple[int, ...], flops: float = 0.0,
  nbytes: int = 0, lanes: tuple[str, ...] = IMAGES,
) -> Workload:  # fmt: skip
  """A row that is to be as fast as the best peer; its roof is multiply-adds, or copying so many bytes."""
  roof = Roof("copy", nbytes) if nbytes else FMA
  return Workload(name, group, program, normal(*shapes), Goal("peers", 1), nbytes or flops, roof, lanes)


def window(
  name: str, x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, padding: int = 0, dilation: int = 1,
  groups: int = 1, transposed: bool = False,
) -> Workload:  # fmt: skip
  """Convolutions other than ResNet's: of images `(n, c, h, w)`, or sequences `(n, c, length)`."""
  sizes = [s if transposed else (s + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for s, k in zip(x[2:], w[2:])]
  flops = 2.0 * x[0] * int(np.prod(sizes)) * int(np.prod(w))

  def program(lib: Library, weights: Tensor, x: Tensor, w: Tensor) -> Tensor:
    if transposed:
      return lib.conv_transpose2d(x, w, stride, padding)
    return lib.conv1d(x, w, stride, padding) if len(sizes) == 1 else lib.conv2d(x, w, stride, padding, dilation, groups)

  lanes = WINDOWS if len(sizes) == 2 else ("ours", "torch", "tinygrad")
  return versus(name, "windows", program, x, w, flops=flops, lanes=lanes)


def windows(by: int) -> list[Workload]:
  """Convolutions and poolings of other networks: generators, segmentation, audio, MobileNet and EfficientNet."""
  narrow, wide, image = (8, 64, 112 // by, 112 // by), 128 // by, (28, 28)
  size, length, audio, late = 56 // min(by, 4), 8192 // by, 160000 // by, 672 // by

  def pool(window: int, padding: int) -> Callable[..., Tensor]:
    return lambda lib, w, x: lib.max_pool(x, window, 2, padding)

  places = int(np.prod(narrow)) * 4
  return [
    window("deconv 4×64×28² 64×32×4² /2", (4, 64, *image), (64, 32, 4, 4), 2, 1, transposed=True),
    window("deconv 1×128×32² 128×64×2² /2", (1, wide, 32, 32), (wide, 64, 2, 2), 2, transposed=True),
    window(f"conv 8×64×{size}² 64×64×3², dilation 2", (8, 64, size, size), (64, 64, 3, 3), 1, 2, 2),
    window(f"conv 4×64×{length} 64×64×3", (4, 64, length), (64, 64, 3), 1, 1),
    window(f"conv 1×1×{audio} 64×1×400 /160", (1, 1, audio), (64, 1, 400), 160),
    window(f"conv 8×{wide}×28², {wide // 4} groups of 3²", (8, wide, *image), (wide, 4, 3, 3), 1, 1,
           groups=wide // 4),
    window(f"conv 8×{wide}×28², 4 groups of 3²", (8, wide, *image), (wide, wide // 4, 3, 3), 1, 1, groups=4),
    window(f"conv depthwise 8×144×{size}² 3²", (8, 144, size, size), (144, 1, 3, 3), 1, 1, groups=144),
    window(f"conv depthwise 8×96×{size}² 5² /2", (8, 96, size, size), (96, 1, 5, 5), 2, 2, groups=96),
    window(f"conv depthwise 8×{late}×14² 5²", (8, late, 14, 14), (late, 1, 5, 5), 1, 2, groups=late),
    window(f"conv 8×3×{224 // by}² 32×3×3² /2", (8, 3, 224 // by, 224 // by), (32, 3, 3, 3), 2, 1),
    window(f"conv 4×3×{320 // by}² 32×3×6² /2", (4, 3, 320 // by, 320 // by), (32, 3, 6, 6), 2, 2),
    versus(f"max pool 8×64×{112 // by}² 3² /2", "windows", pool(3, 1), narrow, nbytes=places * 5 // 4, lanes=WINDOWS),
    versus(f"max pool 8×64×{112 // by}² 2² /2", "windows", pool(2, 0), narrow, nbytes=places * 5 // 4, lanes=WINDOWS),
  ]  # fmt: skip


def moves(by: int) -> list[Workload]:
  """Padding, concatenation and stacks of many tensors."""
  image, rows, odd = (8, 64, 112 // by, 112 // by), (2048 // by, 500), (1000 // by, 77)

  def cat(axis: int) -> Callable[..., Tensor]:
    return lambda lib, w, x, y: lib.cat(x, y, axis)

  def stack(axis: int) -> Callable[..., Tensor]:
    return lambda lib, w, *tensors: lib.stack(tensors, axis)

  def bytes_of(shape: tuple[int, ...]) -> int:
    return 4 * int(np.prod(shape))

  half = (8, 64, 56 // min(by, 4), 56 // min(by, 4))
  return [
    versus(f"pad 8×64×{image[2]}² by 1", "moves", lambda lib, w, x: lib.pad(x, 1), image, nbytes=2 * bytes_of(image)),
    versus(f"cat of 8×64×{half[2]}², axis 1", "moves", cat(1), half, half, nbytes=4 * bytes_of(half), lanes=PEERS),
    *(versus(f"cat of {shape[0]}×{shape[1]}, axis {axis}", "moves", cat(axis), shape, shape,
             nbytes=4 * bytes_of(shape), lanes=PEERS)
      for shape, axis in ((rows, -1), (odd, -1), (odd, 0))),
    versus("stack of 64 of 64²", "moves", stack(0), *((64, 64),) * 64, nbytes=128 * bytes_of((64, 64)), lanes=PEERS),
    versus("stack of 200 of 1000, axis -1", "moves", stack(-1), *((1000,),) * 200, nbytes=400 * 4000, lanes=PEERS),
  ]  # fmt: skip


def recurrent_weights(gates: int, width: int, hidden: int) -> Callable[[Random], Weights]:
  """PyTorch's: of the input, of the hidden state, and two biases."""
  shapes = ((gates * hidden, width), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,))
  return lambda rng: {str(n): models.gaussian(rng, *shape, scale=hidden**-0.5) for n, shape in enumerate(shapes)}


def states(kind: str, lib: Library, w: Mapping[str, Tensor], x: Tensor) -> Tensor:
  """The hidden states of a layer at each step."""
  return lib.recurrent(kind, x, tuple(w[str(n)] for n in range(4)))


def recurrent(kind: str, gates: int, steps: int, batch: int, width: int, hidden: int) -> Workload:
  """A layer over a sequence. NumPy and tinygrad have none."""
  name = f"{kind.upper()}, {steps} steps of {batch}×{width}, {hidden} units"
  flops = 2.0 * steps * batch * gates * hidden * (width + hidden)
  return Workload(
    name, "recurrent", partial(states, kind), normal((steps, batch, width)), Goal("peers", 1), flops, FMA,
    ("ours", "torch"), recurrent_weights(gates, width, hidden),
  )  # fmt: skip


def recurrent_training(steps: int, batch: int, width: int, hidden: int) -> Workload:
  """A training step of an LSTM that tells sequences apart by its last state. The gradient of the input is not
  needed."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    x = rng.standard_normal((steps, batch, width), dtype=np.float32)
    return x, rng.integers(0, hidden, batch).astype(np.int32)

  def loss(lib: Library, w: Mapping[str, Tensor], x: Tensor, labels: Tensor) -> Tensor:
    return lib.cross_entropy(states("lstm", lib, w, x)[-1], labels)

  flops = 2.0 * steps * batch * 4 * hidden * (2 * width + 3 * hidden)
  return Workload(
    f"LSTM training step, {steps} steps of {batch}×{width}, {hidden} units", "recurrent", loss, inputs,
    Goal("peers", 1), flops, FMA, ("ours", "torch"), recurrent_weights(4, width, hidden), 1e-3, "train",
  )  # fmt: skip


def embedding_bag(count: int, width: int, bags: int, length: int) -> Workload:
  """Sums of rows of a table."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    table = rng.standard_normal((count, width), dtype=np.float32)
    return table, rng.integers(0, count, (bags, length)).astype(np.int32)

  nbytes = 4 * bags * length * width
  return Workload(
    f"embedding bag {count}×{width}, {bags}×{length} rows", "recurrent",
    lambda lib, w, table, ids: lib.embedding_bag(table, ids), inputs, Goal("peers", 1), nbytes, Roof("read", nbytes),
  )  # fmt: skip


def adam(count: int, n: int) -> Workload:
  """A step of the optimiser for many small parameters. PyTorch's is its fused one."""
  nbytes = 4 * 7 * count * n * n  # four arrays are read, three written

  def weights(rng: Random) -> Weights:
    return {str(number): models.gaussian(rng, n, n, scale=0.05) for number in range(count)}

  return Workload(
    f"Adam, {count} of {n}²", "training", total, normal(*((n, n),) * count), Goal("peers", 1), nbytes,
    Roof("triad", nbytes), weights=weights, kind="adam",
  )  # fmt: skip


def language_model(batch: int, tokens: int, size: models.BertSize) -> Workload:
  """A training step of a small transformer."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    ids = rng.integers(0, size.vocabulary, (batch, tokens + 1)).astype(np.int32)
    return ids[:, :-1].copy(), ids[:, 1:].ravel().copy()

  flops = 3 * (models.bert_flops(size, batch, tokens) + 2.0 * batch * tokens * size.width * size.vocabulary)
  return Workload(
    f"transformer step, {batch}×{tokens} tokens", "training", partial(models.language_model_loss, size=size),
    inputs, Goal("peers", 1), flops, FMA, TEXTS, partial(models.language_model_weights, size=size, tokens=tokens),
    tolerance=1e-4, kind="train",
  )  # fmt: skip


def resnet50_shapes() -> list[tuple[int, int, int, int, int]]:
  """(channels in, size, channels out, window, stride) of its distinct convolutions, in order (stride in the 3×3)."""
  shapes, channels, size = [(3, 224, 64, 7, 2)], 64, 56
  for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
    shapes += [(channels, size, width, 1, 1), (width, size, width, 3, stride)]
    shapes.append((channels, size, 4 * width, 1, stride))  # around
    channels, size = 4 * width, size // stride
    shapes += [(width, size, channels, 1, 1), (channels, size, width, 1, 1), (width, size, width, 3, 1)]
  return list(dict.fromkeys(shapes))


def attention(lib: Library, w: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
  return lib.attention(q, k, v)


def full_attention(lib: Library, w: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
  return lib.attention(q, k, v, causal=False)


def attending(heads: int, length: int, causal: bool) -> Workload:
  """Attention of heads of 64 numbers."""
  name = f"attention{', causal' * causal}, {heads}×{length}×64"
  inputs, products = normal(*((1, heads, length, 64),) * 3), 2.0 * 2 * heads * length**2 * 64
  return Workload(
    name, "attention", attention if causal else full_attention, inputs, Goal("peers", 1, EAGER),
    products / 2 if causal else products, FMA,
  )  # fmt: skip


def resnet18(batch: int, image: int) -> Workload:
  """Inference with fixed statistics."""
  flops = batch * models.resnet18_flops(image)
  goal, inputs = Goal("peers", 1.2, EAGER), normal((batch, 3, image, image))
  return Workload(
    f"ResNet-18 forward, batch {batch}", "models", models.resnet18, inputs, goal, flops, FMA, MODELS,
    models.resnet18_weights, 1e-4,
  )  # fmt: skip


def resnet18_training(batch: int, image: int) -> Workload:
  """A training step on small images, as of CIFAR-10."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    images = rng.standard_normal((batch, 3, image, image), dtype=np.float32)
    return images, rng.integers(0, 10, batch).astype(np.int32)

  return Workload(
    f"ResNet-18 training step, {batch}×{image}²", "models", models.resnet18_loss, inputs, Goal("peers", 1, EAGER),
    models.resnet18_training_flops(batch, image), FMA, MODELS,
    partial(models.resnet18_weights, first=3, classes=10, fixed=False), 1e-3, "train",
  )  # fmt: skip


def mnist(batch: int) -> Workload:
  """A training step of a convolutional network."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    images = rng.standard_normal((batch, 1, 28, 28), dtype=np.float32)
    return images, rng.integers(0, 10, batch).astype(np.int32)

  return Workload(
    f"MNIST training step, batch {batch}", "models", models.mnist_loss, inputs, Goal("peers", 1.2, EAGER),
    models.mnist_flops(batch), FMA, MODELS, models.mnist_weights, 1e-3, "train",
  )  # fmt: skip


def minilm(batch: int, tokens: int, size: models.BertSize) -> Workload:
  """Texts to vectors."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    return (rng.integers(0, size.vocabulary, (batch, tokens)).astype(np.int32),)

  return Workload(
    f"MiniLM, {batch}×{tokens} tokens", "models", partial(models.bert, size=size), inputs, Goal("peers", 1, EAGER),
    models.bert_flops(size, batch, tokens), FMA, TEXTS, partial(models.bert_weights, size=size, tokens=tokens),
    tolerance=1e-4,
  )  # fmt: skip


def mlp() -> Workload:
  """One captured call of a very small network: what a call costs."""
  sizes = (64, 64, 64, 10)
  weights = partial(models.mlp_weights, sizes=sizes)
  flops = 2.0 * sum(a * b for a, b in zip(sizes, sizes[1:]))
  return Workload(
    "MLP 64-64-64-10, batch 1", "latency", models.mlp, normal((1, 64)), Goal("seconds", 8e-6), flops, None,
    weights=weights,
  )  # fmt: skip


def matrix_function(name: str, *shapes: tuple[int, ...], ascending: bool = False) -> Workload:
  """A factorisation of well conditioned matrices, or something of rows, which may be in ascending order. Work is
  elements: rates are not compared with what the machine can do."""

  def inputs(rng: Random) -> tuple[Array, ...]:
    made = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
    if name in ("cholesky", "eigh"):
      made[0] = made[0] @ made[0].T / np.float32(len(made[0])) + np.eye(len(made[0]), dtype=np.float32)
    elif name == "solve":
      made[0] = made[0] + 4 * np.float32(len(made[0])) ** 0.5 * np.eye(len(made[0]), dtype=np.float32)
    return tuple([np.sort(array, -1) for array in made] if ascending else made)

  def program(lib: Library, w: Tensor, *x: Tensor) -> Tensor:
    return lib.matrix_function(name, *x)

  size = "×".join(map(str, shapes[0])) + ", ascending" * ascending
  return Workload(
    f"{name} {size}", "matrices" if name in MATRIX_FUNCTIONS[:5] else "rows", program, inputs,
    Goal("peers", 1, EAGER), float(np.prod(shapes[0])), None, ("ours", "numpy", "torch"), tolerance=1e-4,
  )  # fmt: skip


def start(kind: str, seconds: float) -> Workload:
  """A new process that adds one to three numbers."""
  return Workload(
    f"cold start, {kind} cache", "start", total, normal((1,)), Goal("seconds", seconds), 1.0, None, kind=kind
  )


def all_workloads(small: bool = False) -> list[Workload]:
  """Every row; `small` makes all of them tiny, to try the benchmark itself."""
  by = 16 if small else 1  # what sizes are divided by
  n, batch = 4096 // by, 2 if small else 8
  square, image = (n, n), 32 if small else 224
  million = (1 << 20) // by
  rows = [
    *(matmul(f"matmul {s // by}", (s // by, s // by), (s // by, s // by), f)
      for s, f in ((2048, 0.85), (1024, 0.80), (512, 0.70))),
    matmul(f"matmul {1000 // by}×{777 // by}×{333 // by}", (1000 // by, 777 // by), (777 // by, 333 // by), 0.70),
    matmul(f"matmul {512 // by}, both transposed", (512 // by, 512 // by), (512 // by, 512 // by), 0.70, True),
    matmul(f"matmul {256 // by}", (256 // by, 256 // by), (256 // by, 256 // by), 0.55),
    matmul(f"matmul {64 // by} of 128²", (64 // by, 128, 128), (64 // by, 128, 128), 0.55),
    matmul(f"matmul {512 // by}, {16384 // by} terms", (512 // by, 16384 // by), (16384 // by, 512 // by), 0.70),
    stream(f"matrix × vector {n}²", "read", product, (square, (n,)), 1),
    stream(f"sum of {64 // by} MB", "read", total, ((16 * million,),), 1, tolerance=1e-6),
    stream(f"sum of {256 // by} MB", "read", total, ((64 * million,),), 1, tolerance=1e-6),
    stream(f"relu(a·b+c), {16 * million >> 20} M", "triad", relu_of_sum, ((16 * million,),) * 3, 4, COMPILED),
    stream(f"softmax {n}²", "copy", softmax, (square,), 2, COMPILED),
    stream(f"layer norm {n}×{1024 // by}", "copy", layer_norm, ((n, 1024 // by),), 2, COMPILED),
    convolution(batch, 64 // by, 56, 64 // by, 3, group="conv", goal=Goal("roof", 0.75)),
    *(convolution(batch, -(-c // by), -(-s // by), o // by, w, st)
      for c, s, o, w, st in resnet50_shapes() if (c, s, o, w) != (64, 56, 64, 3)),
    attending(12, 1024 // by, True), *(attending(8, length // by, True) for length in (512, 2048, 4096)),
    attending(8, 2048 // by, False),
    resnet18(1, image), resnet18(batch, image), resnet18_training(32 // by, 32 // min(by, 4)),
    mnist(4 if small else 512),
    minilm(batch // 2, 128 // by, models.BertSize(2, 32, 2, 64, 50) if small else models.BertSize()), mlp(),
    versus(f"matmul {200 // by}×768×{3072 // by}", "matmul", product, (200 // by, 768), (768, 3072 // by), lanes=MATMUL,
           flops=2.0 * (200 // by) * 768 * (3072 // by)),
    versus(f"row × matrix, 1024×{16384 // by}", "memory", product, (1, 1024), (1024, 16384 // by), lanes=PEERS,
           nbytes=4 * 1024 * (16384 // by)),
    *windows(by), *moves(by),
    recurrent("gru", 3, 64 // by, 32, 128, 256 // by),
    *(recurrent("lstm", 4, 64 // by, sequences, 128, 256 // by) for sequences in (16, 32)),
    recurrent_training(64 // by, 16, 128, 256 // by),
    *(embedding_bag(65536 // by, width, 1024 // by, 32) for width in (128, 300, 512)),
    adam(200 // by, 64), language_model(8, 64 // by, models.BertSize(2, 128, 4, 512, 1024)),
    low_precision(f"matmul {1024 // by}, bf16", 1024 // by, product_bfloat16, "bf16"),
    low_precision(f"matmul {1024 // by}, int8", 1024 // by, product_int8, "int8"),
    *(matrix_function(name, (size // by, size // by), *([(size // by, size // by)] if name == "solve" else []))
      for name in MATRIX_FUNCTIONS[:5] for size in (64, 256, 1024)),
    *(matrix_function(name, shape) for name in MATRIX_FUNCTIONS[5:10] for shape in ((1, million), (64, 16384 // by))),
    matrix_function("cummax", (64, 16384 // by), ascending=True),
    matrix_function("cdist", (1024 // by, 64), (1024 // by, 64)),
    start("cold", 0.6), start("warm", 0.35),
  ]  # fmt: skip
  return rows
