"""The instructions of RDNA 3 (gfx1100) as functions: `from tiny_asm_amd.rdna3 import s_endpgm`. See `Isa`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiny_asm_amd.dsl import Isa

isa = Isa("gfx1100")


def __getattr__(name: str) -> Callable[..., Any]:
  return getattr(isa, name)  # type: ignore[no-any-return]
