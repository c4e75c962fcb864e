"""Distances and norms of vectors with PyTorch's arguments."""

from tiny_tensor.tensor import Tensor

__all__ = ["cosine_similarity", "normalize", "pairwise_distance", "pdist"]


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
  """Divided by the p-norm along `dim`, at least `eps`."""
  return input.normalize(p, dim, eps)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
  """Cosine of the angle between vectors along `dim`, each length at least `eps`."""
  a, b = (x / x.square().sum(dim, keepdim=True).sqrt().maximum(eps) for x in x1._broadcasted(x2))
  return (a * b).sum(dim)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
  """p-norms along the last axis of `x1 - x2 + eps`."""
  return (x1 - x2 + eps).vector_norm(p, -1, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
  """p-norms of the differences of all pairs of rows i < j of `(n, k)`, as a vector."""
  n = int(input.shape[0])
  apart = input.cdist(input, p).flatten()
  return apart[[i * n + j for i in range(n) for j in range(i + 1, n)]] if n > 1 else apart[:0]
