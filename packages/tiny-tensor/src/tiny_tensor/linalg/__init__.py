"""Factorisations and what is made of them: the algorithms behind `Tensor.svd`, `Tensor.solve` and the like."""

from tiny_tensor.pytorch_names import of_torch
from tiny_uop.lazy import lazy_names

__getattr__ = lazy_names(__name__, of_torch)
