"""How the kit says what is wrong: what happened, expected, got, where to look, and the kernel that shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tiny_uop import Ops, UOp, print_uop
from tiny_uop.text.readable import readable

LONGEST_TEXT = 60
"""Lines of a kernel or a program that a message shows. The report in JSON has all of them."""


_NOT_GIVEN = object()


class Misbehaved(AssertionError):
  """A backend did not do what the contract says. `str(error)` is the message, for the author of the backend."""

  def __init__(
    self, what: str, *, expected: object = _NOT_GIVEN, got: object = _NOT_GIVEN, details: Sequence[str] = (),
    look_at: str = "", kernel: UOp | None = None, source: str = "",
  ) -> None:  # fmt: skip
    super().__init__(what)
    self.what, self.kernel, self.source = what, kernel, source
    told = (("expected: ", expected), ("got:      ", got))
    self.facts = [label + _text(value) for label, value in told if value is not _NOT_GIVEN]
    self.facts += [*details, *([f"look at:  {look_at}"] if look_at else [])]

  def __str__(self) -> str:
    lines = [self.what, *(f"  {fact}" for fact in self.facts)]
    if self.kernel is not None:
      lines += ["  kernel:", *_shown(describe(self.kernel))]
    if self.source:
      lines += ["  program, as the compiler made it:", *_shown(self.source)]
    return "\n".join(lines)


def demand(holds: bool, what: str, **told: Any) -> None:
  """Raise Misbehaved, which says `what` is wrong and what else it is `told`, where something does not hold."""
  if not holds:
    raise Misbehaved(what, **told)


def demand_equal(got: object, expected: object, what: str, **told: Any) -> None:
  """The same where something is not what it should be."""
  demand(got == expected, what, expected=expected, got=got, **told)


def demand_raises(kind: type[Exception], call: Callable[[], object], what: str, **told: Any) -> Exception:
  """The error that a call raises. Raises Misbehaved where that is none of its kind, or there is none."""
  try:
    got = call()
  except kind as error:
    return error
  except Exception as error:
    raise Misbehaved(f"{what} raised another error", expected=kind.__name__, **told) from error
  raise Misbehaved(f"{what} raised nothing: an error is swallowed", expected=kind.__name__, got=got, **told)


def demand_seconds(seconds: float | None, what: str, look_at: str = "") -> None:
  """Raise Misbehaved where the time that a call gave with `wait` is none that it can have taken."""
  right = isinstance(seconds, float) and 0 < seconds < 60
  demand(right, f"{what} with wait=True", expected="between 0 and 60 seconds", got=seconds, look_at=look_at)


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
