"""Quantised weights as they lie in memory, and products with them."""

from tiny_llm.quantised.packing import LANES, Packed, Plan, pack, packs
from tiny_llm.quantised.products import FEW, Rounded, exact_product, product, repeated, rounded

__all__ = [
  "FEW", "LANES", "Packed", "Plan", "Rounded", "exact_product", "pack", "packs", "product", "repeated", "rounded",
]  # fmt: skip
