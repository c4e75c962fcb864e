"""Traces: the kernels that a function ran, in a form in which two calls can be compared.

Equal traces mean that the one call's kernels over the other's buffers compute what the other computed. Kernels are
graphs without values of variables and without buffers, so they are equal if they are one object. Buffers are named by
the part they play: the n-th argument, the n-th that came to life in the call, the key of the n-th random draw, one that
existed before, data from Python with their digest.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tiny_runtime import Capture, Device, buffer_of
from tiny_tensor.capturing import Recording
from tiny_uop import Ops, UOp
from tiny_uop.records import dataclass
from tiny_uop.system import sha256


@dataclass(frozen=True, slots=True)
class Step:
  """One CALL: its kernel, the parts that its arguments play, the line that asked for it."""

  kernel: UOp
  arguments: tuple[tuple[Any, ...], ...]
  line: str


class _Parts(dict[UOp, tuple[Any, ...]]):
  """The parts that the BUFFERs of one call play, and views of them."""

  def __init__(self, inputs: Sequence[UOp], draws: Sequence[UOp], created: frozenset[UOp]) -> None:
    super().__init__({buffer: ("draw", n) for n, buffer in enumerate(draws)})
    self |= {buffer: ("argument", n) for n, buffer in enumerate(inputs)}
    self.created = created

  def __missing__(self, buffer: UOp) -> tuple[Any, ...]:
    self[buffer] = part = self._new(buffer)
    return part

  def _new(self, buffer: UOp) -> tuple[Any, ...]:
    if buffer.op is Ops.BUFFER_VIEW:
      return (*self[buffer.src[0]], "from", *buffer.arg, buffer.dtype.name)
    device, (number, size) = str(buffer.device), buffer.arg
    what = (size, buffer.dtype.name, device)
    if (storage := Device.storage(device)) is not None and storage.persistent:
      return ("file", *what)
    if storage is not None:
      return ("data", *what, sha256(buffer_of(buffer).look()).hexdigest())
    return ("new", *what, len(self)) if buffer in self.created else ("outside", *what, number)

  def argument(self, uop: UOp) -> tuple[Any, ...]:
    """One argument of a CALL."""
    if uop.op is Ops.BIND:
      return ("variable", str(uop.src[0].arg[0]))
    return self[uop]


class Trace(tuple[Step, ...]):
  """The kernels of one run of a function. As a guard it compares a call that ran instead of being replayed."""

  catches: ClassVar[str] = "another kernel, another constant, other data from Python, where `JIT_CHECK` is 1"

  def failure(self, call: Sequence[Step]) -> str | None:
    """The difference of the trace of a call from this one."""
    what = difference(call, self)
    return None if what is None else f"a replay would not do what the function does now: {what}"


def trace(schedules: Capture, recorded: Recording, inputs: Sequence[UOp]) -> Trace:
  """The trace of one run of a function."""
  parts = _Parts(inputs, [buffer for buffer, _ in recorded.draws], schedules.created)
  return Trace(
    Step(call.src[0], tuple(map(parts.argument, call.src[1:])), recorded.lines.get(linear, "an unknown line"))
    for linear in schedules
    for call in linear.src
  )


def difference(now: Sequence[Step], before: Sequence[Step]) -> str | None:
  """The first difference of two traces, in words; None if there is none."""
  for n, (a, b) in enumerate(zip(now, before, strict=False)):
    where = f"kernel {n + 1} of {len(now)}, computed at {a.line},"
    if a.kernel is not b.kernel:
      return f"{where} {kernel_difference(a.kernel, b.kernel)}"
    for i, (x, y) in enumerate(zip(a.arguments, b.arguments, strict=True)):
      if x != y:
        return f"{where} has as buffer {i} {_part(x)}, it had {_part(y)}"
  if len(now) != len(before):
    longer = now if len(now) > len(before) else before
    at = longer[min(len(now), len(before))].line
    return f"{len(now)} kernels ran, it were {len(before)}: the first that only one of them has is computed at {at}"
  return None


def kernel_difference(now: UOp, before: UOp) -> str:
  """The first difference of two kernels, in words."""
  for a, b in zip(now.toposort, before.toposort, strict=False):
    if a.op is b.op and a.arg == b.arg and a.dtype is b.dtype:
      continue
    if a.op is b.op is Ops.CONST:
      return f"has the constant {a.arg!r} ({a.dtype.name}), it was {b.arg!r} ({b.dtype.name})"
    return f"computes {_node(a)} where it computed {_node(b)}"
  return "is another one"


def _node(uop: UOp) -> str:
  return f"{uop.op.name} of {uop.dtype.name}" + (f" ({uop.arg!r:.60})" if uop.arg is not None else "")


_PARTS: Mapping[str, str] = {
  "draw": "the key of a random draw",
  "data": "data from Python",
  "file": "a file",
  "new": "one that is made in the call",
  "outside": "one from outside",
}


def _part(part: tuple[Any, ...]) -> str:
  kind = str(part[0])
  if kind == "argument":
    return f"that of tensor {part[1]} of the arguments"
  if kind == "variable":
    return f"the variable {part[1]!r}"
  size = f" ({part[1]} × {part[2]} on {part[3]}, {part[4:]!r})" if len(part) > 3 else ""
  return _PARTS[kind] + size
