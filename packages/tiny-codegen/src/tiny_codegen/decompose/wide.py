"""64-bit integers on two 32-bit halves, for targets without them."""

from __future__ import annotations

from tiny_uop.pattern import Rule

WIDE_RULES: tuple[Rule, ...] = ()
