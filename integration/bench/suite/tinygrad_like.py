"""Libraries with tinygrad's public names: ours, and tinygrad."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from suite.library import TOP, Array, Library, Program, Tensor, put_together


class TinygradLike(Library):
  """Everything is captured by `TinyJit`. Variant "fp32": what is bfloat16 or int8 elsewhere is float32."""

  def __init__(self, variant: str, module: Any) -> None:
    super().__init__(variant)
    self.module = module
    self.dtypes = module.dtypes
    self.device = module.Device[module.Device.DEFAULT]

  def tensor(self, array: Array) -> Tensor:
    if self.variant == "fp32":
      array = array.astype("float32")
    return self.module.Tensor(array).contiguous().realize()

  def array(self, tensor: Tensor) -> Array:
    floats = self.dtypes.float32
    return (tensor.cast(floats) if tensor.dtype == self.dtypes.bfloat16 else tensor).numpy()

  def wait(self) -> None:
    """Until the device has done everything."""
    self.device.synchronize()

  def runner(self, program: Program, inputs: tuple[Tensor, ...]) -> Callable[[], Tensor]:
    def computed(*tensors: Tensor) -> Tensor:
      results = program(self, *tensors)
      self.module.Tensor.realize(*(results if isinstance(results, tuple) else (results,)))
      return results

    captured = self.module.TinyJit(computed)

    def run() -> Tensor:
      result = captured(*inputs)
      self.wait()
      return result

    return run

  def to_bfloat16(self, x: Tensor) -> Tensor:
    return x if self.variant == "fp32" else x.cast(self.dtypes.bfloat16).contiguous().realize()

  def product_int8(self, a: Tensor, b: Tensor) -> Tensor:
    return a @ b if self.variant == "fp32" else a.cast(self.dtypes.int32) @ b.cast(self.dtypes.int32)

  def matrix_function(self, name: str, *x: Tensor) -> Tensor:
    if name in ("qr", "eigh", "svd"):
      return put_together(name, *(x[0].svd(False) if name == "svd" else getattr(x[0], name)()))
    if name in ("cholesky", "solve", "cdist"):
      return getattr(x[0], name)(*x[1:])
    return x[0].topk(TOP) if name == "topk" else getattr(x[0], name)(-1)

  def relu(self, x: Tensor) -> Tensor:
    return x.relu()

  def gelu(self, x: Tensor) -> Tensor:
    return x.gelu()

  def softmax(self, x: Tensor) -> Tensor:
    return x.softmax(-1)

  def layer_norm(self, x: Tensor) -> Tensor:
    return x.layernorm()

  def attention(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    return q.scaled_dot_product_attention(k, v, is_causal=causal)

  def conv2d(
    self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1
  ) -> Tensor:
    return x.conv2d(w, groups=groups, stride=stride, dilation=dilation, padding=padding)

  def conv1d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    return x.conv2d(w, stride=stride, padding=padding)

  def conv_transpose2d(self, x: Tensor, w: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
    return x.conv_transpose2d(w, stride=stride, padding=padding)

  def batch_norm(self, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor = None, var: Tensor = None) -> Tensor:
    if mean is None:
      mean = x.mean((0, 2, 3))
      var = (x - mean.reshape(1, -1, 1, 1)).square().mean((0, 2, 3))
    return x.batchnorm(weight, bias, mean, (var + 1e-5).rsqrt())

  def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
    return x.max_pool2d((size, size), stride, padding=padding)

  def pad(self, x: Tensor, by: int) -> Tensor:
    return x.pad((by, by, by, by)).contiguous()

  def cat(self, x: Tensor, y: Tensor, axis: int) -> Tensor:
    return x.cat(y, dim=axis).contiguous()

  def stack(self, tensors: tuple[Tensor, ...], axis: int) -> Tensor:
    return tensors[0].stack(*tensors[1:], dim=axis).contiguous()

  def recurrent(self, kind: str, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    raise NotImplementedError("tinygrad has one step of an LSTM, and no sequences")

  def embedding_bag(self, table: Tensor, ids: Tensor) -> Tensor:
    return table[ids].sum(1)

  def mean_of_image(self, x: Tensor) -> Tensor:
    return x.mean((2, 3))

  def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
    return logits.sparse_categorical_crossentropy(labels)

  def training_step(
    self, loss: Callable[..., Tensor], weights: Mapping[str, Array], data: tuple[Tensor, ...], rate: float
  ) -> Callable[[], Tensor]:
    trained = {name: self.tensor(array) for name, array in weights.items()}
    optimiser = self.module.nn.optim.Adam(list(trained.values()), lr=rate)

    def step(*inputs: Tensor) -> Tensor:
      optimiser.zero_grad()
      value = loss(self, trained, *inputs)
      value.backward()
      return value.realize(*optimiser.schedule_step())

    captured = self.module.TinyJit(step)

    def run() -> Tensor:
      with self.training():
        result = captured(*data)
      self.wait()
      return result

    return run

  def adam(
    self, weights: Mapping[str, Array], gradients: tuple[Tensor, ...], rate: float
  ) -> Callable[[], list[Tensor]]:
    trained = [self.tensor(array) for array in weights.values()]
    optimiser = self.module.nn.optim.Adam(trained, lr=rate)

    def step() -> None:
      for w, gradient in zip(trained, gradients, strict=True):
        w.grad = gradient
      self.module.Tensor.realize(*optimiser.schedule_step())

    captured = self.module.TinyJit(step)

    def run() -> list[Tensor]:
      with self.training():
        captured()
      self.wait()
      return trained

    return run

  def training(self) -> contextlib.AbstractContextManager[Any]:
    """The context in which optimisers step."""
    context: contextlib.AbstractContextManager[Any] = self.module.Tensor.train()
    return context


class Ours(TinygradLike):
  """tiny_tensor."""

  def __init__(self, variant: str = "") -> None:
    import tiny_tensor

    super().__init__(variant, tiny_tensor)

  def wait(self) -> None:
    self.device.sync()

  def recurrent(self, kind: str, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
    layer = getattr(self.module.nn, kind.upper())(x.shape[-1], weights[1].shape[1])
    layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, layer.bias_hh_l0 = weights
    return layer(x)[0]

  def embedding_bag(self, table: Tensor, ids: Tensor) -> Tensor:
    return self.module.nn.functional.embedding_bag(ids, table, mode="sum")


class Tinygrad(TinygradLike):
  """tinygrad on its device CPU."""

  def __init__(self, variant: str = "") -> None:
    import tinygrad

    super().__init__(variant, tinygrad)
    self.context = tinygrad.Context

  def training(self) -> contextlib.AbstractContextManager[Any]:
    context: contextlib.AbstractContextManager[Any] = self.context(TRAINING=1)
    return context
