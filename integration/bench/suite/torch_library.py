"""PyTorch, eager; and with images laid out channels last, or compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from suite.library import TOP, Array, Library, Program, Tensor, put_together


class Torch(Library):
  """Variants: "channels last", "compiled"."""

  def __init__(self, variant: str = "") -> None:
    super().__init__(variant)
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    self.torch: Any = torch
    self.functional: Any = torch.nn.functional

  def tensor(self, array: Array) -> Tensor:
    tensor = self.torch.from_numpy(array.copy())
    if self.variant == "channels last" and tensor.ndim == 4:
      return tensor.contiguous(memory_format=self.torch.channels_last)
    return tensor

  def array(self, tensor: Tensor) -> Array:
    return (tensor.float() if tensor.dtype == self.torch.bfloat16 else tensor).detach().numpy()

  def runner(self, program: Program, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    def call(*tensors: Tensor) -> Tensor:
      return program(self, *tensors)

    function: Callable[..., Tensor] = self.torch.compile(call) if self.variant == "compiled" else call

    def run() -> Tensor:
      with self.torch.inference_mode():
        return function(*inputs)

    return run

  def to_bfloat16(self, x: Tensor) -> Tensor:
    return x.bfloat16()

  def product_int8(self, a: Tensor, b: Tensor) -> Tensor:
    return self.torch._int_mm(a, b)

  def matrix_function(self, name: str, *x: Tensor) -> Tensor:
    linalg = self.torch.linalg
    if name in ("cholesky", "solve"):
      return getattr(linalg, name)(*x)
    if name in ("qr", "eigh", "svd"):
      return put_together(name, *(linalg.svd(x[0], False) if name == "svd" else getattr(linalg, name)(x[0])))
    if name == "cdist":
      return self.torch.cdist(*x)
    return x[0].topk(TOP) if name == "topk" else getattr(x[0], name)(-1)

  def relu(self, x: Tensor) -> Tensor:
    return x.relu()

  def gelu(self, x: Tensor) -> Tensor:
    return self.functional.gelu(x, approximate="tanh")

  def softmax(self, x: Tensor) -> Tensor:
    return x.softmax(-1)

  def layer_norm(self, x: Tensor) -> Tensor:
    return self.functional.layer_norm(x, x.shape[-1:])

  def attention(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    return self.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

  def conv2d(
    self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
  ) -> Tensor:
    return self.functional.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups)

  def conv1d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    return self.functional.conv1d(x, w, stride=stride, padding=padding)

  def conv_transpose2d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    return self.functional.conv_transpose2d(x, w, stride=stride, padding=padding)

  def batch_norm(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor = None, var: Tensor = None) -> Tensor:
    return self.functional.batch_norm(x, mean, var, weight, bias, training=mean is None)

  def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
    return self.functional.max_pool2d(x, size, stride, padding)

  def pad(self, x: Tensor, by: int) -> Tensor:
    return self.functional.pad(x, (by, by, by, by))

  def cat(self, x: Tensor, y: Tensor, axis: int) -> Tensor:
    return self.torch.cat((x, y), axis)

  def stack(self, tensors: tuple[Tensor, ...], axis: int) -> Tensor:
    return self.torch.stack(tensors, axis)

  def recurrent(self, kind: str, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    zeros = x.new_zeros(1, x.shape[1], weights[1].shape[1])
    options = (True, 1, 0.0, False, False, False)  # biases, layers, dropout, training, both ways, batch first
    if kind == "gru":
      return self.torch.gru(x, zeros, weights, *options)[0]
    return self.torch.lstm(x, (zeros, zeros), weights, *options)[0]

  def embedding_bag(self, table: Tensor, ids: Tensor) -> Tensor:
    return self.functional.embedding_bag(ids, table, mode="sum")

  def mean_of_image(self, x: Tensor) -> Tensor:
    return x.mean((2, 3))

  def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
    return self.functional.cross_entropy(logits, labels.long())

  def training_step(
    self, loss: Callable[..., Tensor], weights: Mapping[str, Array], data: tuple[Tensor, ...], rate: float
  ) -> Callable[[], Tensor]:
    trained = {name: self.tensor(array).requires_grad_() for name, array in weights.items()}
    optimiser = self.torch.optim.Adam(list(trained.values()), lr=rate)

    def step() -> Tensor:
      optimiser.zero_grad()
      value = loss(self, trained, *data)
      value.backward()
      optimiser.step()
      return value

    function: Callable[[], Tensor] = self.torch.compile(step) if self.variant == "compiled" else step
    return function

  def adam(
    self, weights: Mapping[str, Array], gradients: tuple[Tensor, ...], rate: float
  ) -> Callable[[], list[Tensor]]:
    trained = [self.tensor(array).requires_grad_() for array in weights.values()]
    for w, gradient in zip(trained, gradients, strict=True):
      w.grad = gradient
    optimiser = self.torch.optim.Adam(trained, lr=rate, fused=True)

    def step() -> list[Tensor]:
      optimiser.step()
      return trained

    return step
