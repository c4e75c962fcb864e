"""How the kit says what is wrong: what happened, expected, got, where to look, and the kernel that shows it."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_uop import Ops, UOp, print_uop
from tiny_uop.text.readable import readable

LONGEST_TEXT = 60
"""Lines of a kernel or a program that a message shows. The report in JSON has all of them."""


_NOT_GIVEN = object()


class Misbehaved(AssertionError):
  """A backend did not do what the contract says. `str(error)` is the message, for the author of the backend."""

  def __init__(
    self,
    what: str,
    *,
    expected: object = _NOT_GIVEN,
    got: object = _NOT_GIVEN,
    details: Sequence[str] = (),
    look_at: str = "",
    kernel: UOp | None = None,
    source: str = "",
  ) -> None:
    super().__init__(what)
    self.what = what
    self.kernel = kernel
    self.source = source
    self.facts = [
      *(() if expected is _NOT_GIVEN else (f"expected: {_text(expected)}",)),
      *(() if got is _NOT_GIVEN else (f"got:      {_text(got)}",)),
      *details,
      *((f"look at:  {look_at}",) if look_at else ()),
    ]

  def __str__(self) -> str:
    lines = [self.what, *(f"  {fact}" for fact in self.facts)]
    if self.kernel is not None:
      lines += ["  kernel:", *_shown(describe(self.kernel))]
    if self.source:
      lines += ["  program, as the compiler made it:", *_shown(self.source)]
    return "\n".join(lines)


def demand(
  holds: bool,
  what: str,
  *,
  expected: object = _NOT_GIVEN,
  got: object = _NOT_GIVEN,
  look_at: str = "",
  kernel: UOp | None = None,
) -> None:
  """Raise Misbehaved where something does not hold. `what` says what is wrong then."""
  if not holds:
    raise Misbehaved(what, expected=expected, got=got, look_at=look_at, kernel=kernel)


def describe(kernel: UOp) -> str:
  """A kernel as formulas; where memory is written and read in a certain order, which these leave out, as text of the
  IR."""
  ordered = any(u.op is Ops.AFTER for u in kernel.toposort)
  return print_uop(kernel) if ordered else readable(kernel)


def _text(value: object) -> str:
  text = value if isinstance(value, str) else repr(value)
  return text if len(text) <= 500 else f"{text[:500]}… ({len(text)} characters)"


def _shown(text: str) -> list[str]:
  lines = text.strip("\n").splitlines()
  more = len(lines) - LONGEST_TEXT
  shown = lines if more <= 0 else [*lines[:LONGEST_TEXT], f"… {more} more lines; --report FILE has them"]
  return [f"    {line}" for line in shown]
