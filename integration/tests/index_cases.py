"""Operations of real models whose index expressions `test_index_expressions` looks at."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tiny_tensor import Tensor, nn


class Case(NamedTuple):
  """`make` gives the tensors to realise. `divisions` is how many divisions and remainders the kernels may have in
  all, as scheduled; `why` says why they cannot have none."""

  make: Callable[[], list[Tensor]]
  divisions: int = 0
  why: str = ""
  shared: int = 0  # more once loops that threads share are one: its counter is taken apart, outside of all others


CASES: dict[str, Case] = {}
STRIDED = "a place was written, or read, only where it is a multiple of the stride: a remainder and a quotient per axis"
WRAPPED = "what leaves at one end enters at the other: a remainder per axis"


def case(divisions: int = 0, why: str = "", shared: int = 0) -> Callable[[Callable[[], Tensor | list[Tensor]]], None]:
  """Register the function below as the case of its name."""

  def register(make: Callable[[], Tensor | list[Tensor]]) -> None:
    def tensors() -> list[Tensor]:
      made = make()
      return made if isinstance(made, list) else [made]

    CASES[make.__name__] = Case(tensors, divisions, why, shared)

  return register


def data(*shape: int) -> Tensor:
  """An input in memory of its own."""
  return Tensor.empty(*shape)


def image() -> Tensor:
  return data(2, 8, 12, 12)


# *** convolution ***


@case()
def conv_1x1() -> Tensor:
  return image().conv2d(data(16, 8, 1, 1))


@case()
def conv_3x3() -> Tensor:
  return image().conv2d(data(16, 8, 3, 3))


@case()
def conv_3x3_padded() -> Tensor:
  return image().conv2d(data(16, 8, 3, 3), padding=1)


@case()
def conv_3x3_strided() -> Tensor:
  return image().conv2d(data(16, 8, 3, 3), padding=1, stride=2)


@case()
def conv_3x3_dilated() -> Tensor:
  return image().conv2d(data(16, 8, 3, 3), padding=2, dilation=2)


@case()
def conv_7x7_strided() -> Tensor:
  return data(2, 3, 32, 32).conv2d(data(16, 3, 7, 7), padding=3, stride=2)


@case()
def conv_grouped() -> Tensor:
  return image().conv2d(data(16, 4, 3, 3), padding=1, groups=2)


@case(shared=1)
def conv_depthwise() -> Tensor:
  return image().conv2d(data(8, 1, 3, 3), padding=1, groups=8)


@case()
def conv_1d() -> Tensor:
  return data(2, 8, 20).conv2d(data(16, 8, 5), padding=2, stride=3)


@case()
def conv_3d() -> Tensor:
  return data(2, 3, 6, 6, 6).conv2d(data(4, 3, 3, 3, 3), padding=1)


@case()
def conv_transposed() -> Tensor:
  return data(2, 8, 6, 6).conv_transpose2d(data(8, 4, 3, 3))


@case()
def conv_transposed_strided() -> Tensor:
  return data(2, 8, 6, 6).conv_transpose2d(data(8, 4, 3, 3), stride=2, padding=1, output_padding=1)


@case()
def conv_transposed_2x2() -> Tensor:
  return data(2, 8, 6, 6).conv_transpose2d(data(8, 4, 2, 2), stride=2)


# *** pooling ***


@case()
def max_pool() -> Tensor:
  return image().max_pool2d()


@case()
def max_pool_overlapping() -> Tensor:
  return image().max_pool2d((3, 3), stride=2, padding=1)


@case()
def max_pool_ceil() -> Tensor:
  return data(2, 4, 11, 11).max_pool2d((3, 3), stride=2, ceil_mode=True)


@case()
def max_pool_dilated() -> Tensor:
  return image().max_pool2d((3, 3), stride=1, dilation=2)


@case()
def max_pool_indices() -> list[Tensor]:
  return list(image().max_pool2d((2, 2), return_indices=True))


@case()
def avg_pool() -> Tensor:
  return image().avg_pool2d()


@case()
def avg_pool_padded() -> Tensor:
  return image().avg_pool2d((3, 3), stride=2, padding=1, count_include_pad=False)


@case()
def avg_pool_ceil() -> Tensor:
  return data(2, 4, 11, 11).avg_pool2d((3, 3), stride=2, ceil_mode=True)


@case()
def avg_pool_all() -> Tensor:
  return image().mean((2, 3))


# *** windows, shifts and views ***


@case()
def unfold_1d() -> Tensor:
  return data(100).unfold(0, 5, 2).contiguous()


@case()
def unfold_2d() -> Tensor:
  return data(12, 14).unfold(0, 3, 1).unfold(1, 4, 2).contiguous()


@case(1, WRAPPED)
def roll_axis() -> Tensor:
  return data(6, 10).roll(3, 1).contiguous()


@case(2, WRAPPED)
def roll_axes() -> Tensor:
  return data(6, 10).roll((2, -3), (0, 1)).contiguous()


@case(1, WRAPPED)
def roll_flat() -> Tensor:
  return data(4, 10).roll(7).contiguous()  # too short to be cut in two


@case(2, WRAPPED)
def roll_of_a_window() -> Tensor:
  """Shifted windows, as in a Swin transformer."""
  x = data(2, 8, 8, 4).roll((-2, -2), (1, 2))
  return x.reshape(2, 2, 4, 2, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(8, 16, 4).contiguous()


@case()
def flip() -> Tensor:
  return data(6, 10, 3).flip(0, 1).contiguous()


@case()
def strided_view() -> Tensor:
  return data(20, 30)[1::3, ::-2].contiguous()


@case()
def padded_view() -> Tensor:
  return data(6, 10).pad(((1, 2), (3, 0))).contiguous()


@case()
def reshape_of_padded() -> Tensor:
  return data(6, 10).pad(((1, 1), (3, 0))).reshape(13, 8).contiguous()


@case()
def split_of_padded() -> Tensor:
  return data(6, 10).pad(((0, 0), (1, 1))).reshape(6, 3, 4).contiguous()


@case()
def merge_of_padded() -> Tensor:
  return data(6, 10).pad(((0, 2), (0, 0))).reshape(80).contiguous()


@case()
def transpose_flattened() -> Tensor:
  return data(6, 10).transpose(0, 1).flatten().contiguous()


@case()
def head_split() -> Tensor:
  return data(2, 7, 4 * 8).reshape(2, 7, 4, 8).transpose(1, 2).contiguous()


@case()
def head_merge() -> Tensor:
  return data(2, 4, 7, 8).transpose(1, 2).reshape(2, 7, 32).contiguous()


@case()
def pixel_shuffle() -> Tensor:
  return data(2, 12, 5, 7).reshape(2, 3, 2, 2, 5, 7).permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 10, 14).contiguous()


@case(4, "rows of two are too short for a loop of their own: row and column are taken apart")
def pixel_shuffle_and_bias() -> Tensor:
  shuffled = data(2, 12, 5, 7).reshape(2, 3, 2, 2, 5, 7).permute(0, 1, 4, 2, 5, 3).reshape(2, 3, 10, 14)
  return (shuffled + data(1, 3, 1, 1)).relu()


@case()
def head_merge_and_projection() -> Tensor:
  return data(2, 4, 7, 8).transpose(1, 2).reshape(2, 7, 32) @ data(32, 16)


@case()
def pixel_unshuffle() -> Tensor:
  return data(2, 3, 10, 14).reshape(2, 3, 5, 2, 7, 2).permute(0, 1, 3, 5, 2, 4).reshape(2, 12, 5, 7).contiguous()


@case()
def patches() -> Tensor:
  """The input of a vision transformer."""
  x = data(2, 3, 16, 16).reshape(2, 3, 4, 4, 4, 4).permute(0, 2, 4, 1, 3, 5)
  return x.reshape(2, 16, 48).contiguous()


@case()
def concatenation() -> Tensor:
  return data(4, 3).cat(data(4, 5), data(4, 2), dim=1)


@case()
def stacked() -> Tensor:
  return data(4, 3).stack(data(4, 3), data(4, 3), dim=1)


@case()
def repeated() -> Tensor:
  return data(3, 5).repeat(2, 4).contiguous()


@case()
def repeated_elements() -> Tensor:
  return data(3, 5).repeat_interleave(4, 1).contiguous()


@case()
def expanded() -> Tensor:
  return (data(3, 1, 5).expand(3, 4, 5) + data(4, 1)).contiguous()


@case()
def diagonal() -> Tensor:
  return data(6, 6).diagonal().contiguous()


@case()
def upper_triangle() -> Tensor:
  return data(6, 8).triu(1).contiguous()


# *** indexing ***


@case()
def index_int() -> Tensor:
  return data(6, 10, 4)[2, :, -1].contiguous()


@case()
def index_slices() -> Tensor:
  return data(12, 10)[10:2:-3, 1:9:4].contiguous()


@case()
def index_tensor() -> Tensor:
  return data(50, 8)[Tensor([3, 1, 4, 1, 5]).realize()]


@case()
def index_two_tensors() -> Tensor:
  return data(6, 10, 4)[Tensor([3, 1, 4]).realize(), Tensor([0, 9, 2]).realize()]


@case()
def index_tensors_around_slice() -> Tensor:
  return data(6, 10, 4)[Tensor([3, 1, 4]).realize(), 1:9:2, Tensor([0, 3, 2]).realize()]


@case()
def index_mask() -> Tensor:
  return data(6, 10).masked_fill(data(6, 10) > 0, 0.0)


@case()
def gather() -> Tensor:
  return data(6, 10).gather(1, Tensor([[1, 2, 3]] * 6).realize())


@case()
def one_hot() -> Tensor:
  return Tensor([3, 1, 4, 1]).realize().one_hot(6).contiguous()


@case()
def embedding() -> Tensor:
  return nn.Embedding(30, 8)(Tensor([[3, 1, 4], [1, 5, 9]]).realize())


@case()
def slice_assignment() -> Tensor:
  x = data(6, 10)
  x[1:4, ::2] = data(3, 5)
  return x


# *** reductions and models ***


@case()
def interpolate_nearest() -> Tensor:
  return data(2, 3, 5, 7).interpolate((10, 14), mode="nearest")


@case()
def interpolate_linear() -> Tensor:
  return data(2, 3, 5, 7).interpolate((10, 14))


@case()
def attention() -> Tensor:
  x = data(2, 7, 32)
  q, k, v = (x.linear(data(32, 32)).reshape(2, 7, 4, 8).transpose(1, 2) for _ in range(3))
  return q.scaled_dot_product_attention(k, v, is_causal=True).transpose(1, 2).reshape(2, 7, 32)


@case()
def rotary() -> Tensor:
  x = data(2, 7, 4, 8).reshape(2, 7, 4, 4, 2)
  cos, sin = data(1, 7, 1, 4, 1), data(1, 7, 1, 4, 1)
  even, odd = x[..., :1], x[..., 1:]
  return (even * cos - odd * sin).cat(even * sin + odd * cos, dim=-1).flatten(3)


@case()
def conv_gradients() -> list[Tensor]:
  x, w = image(), data(16, 8, 3, 3)
  return (x.conv2d(w, padding=1) * data(2, 16, 12, 12)).sum().gradient(x, w)


@case()
def conv_strided_gradients() -> list[Tensor]:
  x, w = image(), data(16, 8, 3, 3)
  return (x.conv2d(w, padding=1, stride=2) * data(2, 16, 6, 6)).sum().gradient(x, w)


@case()
def conv_dilated_gradients() -> list[Tensor]:
  x, w = image(), data(16, 8, 3, 3)
  return (x.conv2d(w, padding=2, dilation=2) * data(2, 16, 12, 12)).sum().gradient(x, w)


@case(shared=1)
def conv_depthwise_gradients() -> list[Tensor]:
  x, w = image(), data(8, 1, 3, 3)
  return (x.conv2d(w, padding=1, groups=8) * data(2, 8, 12, 12)).sum().gradient(x, w)


@case()
def max_pool_gradient() -> list[Tensor]:
  x = image()
  return (x.max_pool2d() * data(2, 8, 6, 6)).sum().gradient(x)


@case(4, STRIDED)
def max_pool_overlapping_gradient() -> list[Tensor]:
  x = image()
  return (x.max_pool2d((3, 3), stride=2, padding=1) * data(2, 8, 6, 6)).sum().gradient(x)


@case(4, STRIDED)
def avg_pool_gradient() -> list[Tensor]:
  x = image()
  return (x.avg_pool2d((3, 3), stride=2, padding=1) * data(2, 8, 6, 6)).sum().gradient(x)


@case(2, STRIDED)
def unfold_gradient() -> list[Tensor]:
  x = data(100)
  return (x.unfold(0, 5, 2) * data(48, 5)).sum().gradient(x)


@case()
def roll_gradient() -> list[Tensor]:
  x = data(6, 10)
  return (x.roll(3, 1) * data(6, 10)).sum().gradient(x)


@case()
def resnet_block() -> Tensor:
  """Two convolutions with batch normalisation, and a strided short cut."""
  x = image()

  def norm(y: Tensor) -> Tensor:
    return y.batchnorm(data(16), data(16), y.mean((0, 2, 3)), data(16))

  y = norm(x.conv2d(data(16, 8, 3, 3), padding=1, stride=2)).relu()
  y = norm(y.conv2d(data(16, 16, 3, 3), padding=1))
  return (y + norm(x.conv2d(data(16, 8, 1, 1), stride=2))).relu()
