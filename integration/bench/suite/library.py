"""What a workload may ask of a library: `Library`, the same names for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

Array = Any
Tensor = Any
Program = Callable[..., Tensor]


MATRIX_FUNCTIONS = ("cholesky", "solve", "qr", "eigh", "svd", "sort", "topk", "cumsum", "cummax", "median", "cdist")
"""By the name that NumPy or PyTorch has for what is done. `sort`, `topk`, `cummax` and `median` of rows give values and
their indices; those of NumPy, which has no such functions, values only."""
TOP = 10  # of `topk`


def put_together(name: str, *factors: Tensor) -> Tensor:
  """The matrix that Q and R, eigenvalues and eigenvectors, or U, S and Vᵀ are factors of."""
  if name == "qr":
    return factors[0] @ factors[1]
  if name == "eigh":
    return (factors[1] * factors[0]) @ factors[1].T
  return (factors[0] * factors[1]) @ factors[2]


class Library(ABC):
  """One library (and a way to use it: a variant). Tensors are what its own functions take.

  Images are `(batch, channels, height, width)`. `@`, `+`, `*`, `.reshape(…)`, `.sum()` and `.T` are the tensors' own.
  """

  def __init__(self, variant: str = "") -> None:
    self.variant = variant

  # *** values ***

  @abstractmethod
  def tensor(self, array: Array) -> Tensor:
    """The array in the library's own memory."""

  @abstractmethod
  def array(self, tensor: Tensor) -> Array:
    """The tensor as a NumPy array; types that NumPy lacks as float32."""

  def runner(self, program: Program, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    """A function that computes the program's result anew at every call, in the way that is fastest when repeated."""
    return lambda: program(self, *inputs)

  # *** types ***

  @abstractmethod
  def to_bfloat16(self, x: Tensor) -> Tensor:
    """Rounded to bfloat16."""

  def product_bfloat16(self, a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of bfloat16 tensors, in bfloat16."""
    return a @ b

  @abstractmethod
  def product_int8(self, a: Tensor, b: Tensor) -> Tensor:
    """Matrix product of int8 tensors, exact in int32."""

  # *** functions ***

  def swapped(self, x: Tensor, a: int, b: int) -> Tensor:
    """With two axes exchanged."""
    return x.transpose(a, b)

  @abstractmethod
  def relu(self, x: Tensor) -> Tensor: ...

  @abstractmethod
  def matrix_function(self, name: str, *x: Tensor) -> Tensor:
    """A factor of a matrix, the matrix put together from its factors, or rows in order, with the indices of what is in
    them as a tuple: one of `MATRIX_FUNCTIONS`."""

  @abstractmethod
  def gelu(self, x: Tensor) -> Tensor:
    """By the tanh form (Hendrycks & Gimpel, 2016)."""

  @abstractmethod
  def softmax(self, x: Tensor) -> Tensor:
    """Over the last axis."""

  @abstractmethod
  def layer_norm(self, x: Tensor) -> Tensor:
    """Over the last axis, without weights."""

  @abstractmethod
  def attention(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """Scaled dot-product attention over `(batch, heads, length, width)`."""

  @abstractmethod
  def conv2d(
    self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
  ) -> Tensor: ...

  @abstractmethod
  def conv1d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """`(batch, channels, length)` and `(out, channels, window)`."""

  @abstractmethod
  def conv_transpose2d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    """The transpose of conv2d in its images; weights are `(channels, out, height, width)`."""

  @abstractmethod
  def batch_norm(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor = None, var: Tensor = None) -> Tensor:
    """With the given statistics of each channel, or with those of the batch. ε is 1e-5."""

  @abstractmethod
  def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor: ...

  @abstractmethod
  def pad(self, x: Tensor, by: int) -> Tensor:
    """With so many zeros on all four sides of images."""

  @abstractmethod
  def cat(self, x: Tensor, y: Tensor, axis: int) -> Tensor:
    """Joined along an axis."""

  @abstractmethod
  def stack(self, tensors: tuple[Tensor, ...], axis: int) -> Tensor:
    """Put together along a new axis."""

  @abstractmethod
  def recurrent(self, kind: str, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    """The hidden states `(length, batch, hidden)` of a "gru" or an "lstm" over `(length, batch, features)`, from
    zeros on. Weights are PyTorch's: of the input, of the hidden state, and the two biases."""

  @abstractmethod
  def embedding_bag(self, table: Tensor, ids: Tensor) -> Tensor:
    """Sums of rows of the table `(count, width)`: ids `(bags, length)` → `(bags, width)`."""

  @abstractmethod
  def mean_of_image(self, x: Tensor) -> Tensor:
    """`(batch, channels, height, width)` → `(batch, channels)`."""

  @abstractmethod
  def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
    """Mean over the batch of −log softmax(logits)[label]."""

  @abstractmethod
  def training_step(
    self, loss: Callable[..., Tensor], weights: Mapping[str, Array], data: tuple[Tensor, ...], rate: float
  ) -> Callable[[], Tensor]:
    """A function that computes `loss(library, weights, *data)`, makes a step of Adam, and returns the loss.

    `weights` are arrays. Adam has the usual betas 0.9 and 0.999 and ε = 1e-8.
    """

  @abstractmethod
  def adam(
    self, weights: Mapping[str, Array], gradients: tuple[Tensor, ...], rate: float
  ) -> Callable[[], list[Tensor]]:
    """A function that makes a step of Adam with these gradients, and returns the weights. See `training_step`."""
