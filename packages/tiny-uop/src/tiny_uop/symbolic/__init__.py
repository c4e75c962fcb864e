"""Symbolic simplification: tables of rules that keep the value of every expression, and `simplify`, which runs them
all."""

from tiny_uop.symbolic.simplify import PLAIN, SYMBOLIC, simplify, simplify_substituted
from tiny_uop.symbolic.valid import simplify_gate, simplify_under

__all__ = ["PLAIN", "SYMBOLIC", "simplify", "simplify_gate", "simplify_substituted", "simplify_under"]
