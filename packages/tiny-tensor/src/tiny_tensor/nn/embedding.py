"""Tables of vectors, looked up by number."""

from tiny_tensor.nn.functional.embeddings import embedding_bag
from tiny_tensor.nn.module import Module
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes


class Embedding(Module):
  """idx `(…)` of integers in `[0, vocab_size)` → `(…, embed_size)`. An index outside the range gives a row of zeros."""

  def __init__(self, vocab_size: int, embed_size: int) -> None:
    self.vocab_size, self.embed_size = vocab_size, embed_size
    self.weight = Tensor.glorot_uniform(vocab_size, embed_size).contiguous()

  def __call__(self, idx: Tensor) -> Tensor:
    if not dtypes.is_int(idx.dtype):
      raise TypeError(f"Embedding is indexed by integers, got {idx.dtype.name}")
    if idx.dtype.itemsize < 4:  # the table may be longer than the type can count
      idx = idx.cast(dtypes.int32)
    # a one-hot product: its gradient is a reduction, and the scheduler collapses it into a gather
    hot = idx.unsqueeze(-1) == Tensor.arange(self.vocab_size, device=idx.device, dtype=idx.dtype)
    return hot.unsqueeze(-1).where(self.weight, 0).sum(axis=-2, dtype=self.weight.dtype)


class EmbeddingBag(Module):
  """Sums, means or maxima of rows of a table: numbers `(bags, length)`, or `(n,)` and the offsets at which bags begin,
  → `(bags, embedding_dim)`. The arguments of both are those of `nn.functional.embedding_bag`. `weight` is normal.
  """

  def __init__(
    self,
    num_embeddings: int,
    embedding_dim: int,
    mode: str = "mean",
    include_last_offset: bool = False,
    padding_idx: int | None = None,
  ) -> None:
    self.mode, self.include_last_offset, self.padding_idx = mode, include_last_offset, padding_idx
    self.weight = Tensor.randn(num_embeddings, embedding_dim).contiguous()

  def __call__(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
    return embedding_bag(
      input,
      self.weight,
      offsets,
      mode=self.mode,
      per_sample_weights=per_sample_weights,
      include_last_offset=self.include_last_offset,
      padding_idx=self.padding_idx,
    )
