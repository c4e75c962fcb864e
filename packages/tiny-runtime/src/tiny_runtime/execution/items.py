"""Schedules as lists: an `ExecItem` for each kernel or copy, which can be looked at, compiled and run by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tiny_runtime.binary import Binary
from tiny_runtime.buffer import Buffer, buffer_of
from tiny_runtime.compile_cache import kernel_name
from tiny_runtime.execution.execute import prepare_all, run
from tiny_runtime.execution.graph import buffers_of
from tiny_runtime.execution.launch import KernelLaunch, prepare
from tiny_runtime.execution.progress import Progress
from tiny_uop import GroupOp, Ops, UOp, dtypes
from tiny_uop.records import dataclass

# what the operations of a kernel are called as methods of a tensor, where the names differ
NAMES: dict[Ops, str] = {
  Ops.FDIV: "div", Ops.CMPLT: "lt", Ops.CMPNE: "ne", Ops.CMPEQ: "eq", Ops.MAX: "maximum", Ops.AND: "bitwise_and",
  Ops.OR: "bitwise_or", Ops.XOR: "bitwise_xor", Ops.SHL: "lshift", Ops.SHR: "rshift", Ops.FLOORDIV: "floordiv",
  Ops.FLOORMOD: "mod", Ops.TRUNCDIV: "idiv", Ops.TRUNCMOD: "fmod",
}  # fmt: skip
REDUCTIONS: dict[Ops, str] = {Ops.ADD: "sum", Ops.MUL: "prod", Ops.MAX: "max"}


@dataclass(frozen=True)
class Metadata:
  """Something that a kernel does."""

  name: str
  """As a method of a tensor is called: "exp", "sum"; or "copy"."""


class ExecItem:
  """One kernel or copy of a schedule with its buffers.

  The items of a schedule know of each other: one that would read what is not there yet, or not there any more, or
  overwrite what another one has still to read, raises RuntimeError and changes nothing. In their order all of them run,
  in one go or in parts; and once more, unless a buffer that was there before is updated.
  """

  __slots__ = ("_number", "_prg", "_progress", "call")
  call: UOp
  """The CALL in the schedule that it is."""

  def __init__(self, call: UOp, progress: Progress, number: int) -> None:
    self.call, self._progress, self._number = call, progress, number
    self._prg: Binary | None = None

  def __repr__(self) -> str:
    devices = "" if not self.bufs else f" on {self.bufs[0].device}"
    return f"<ExecItem {self._number}: {name_of(self.call)}{devices}, {len(self.bufs)} buffers>"

  @property
  def ast(self) -> UOp:
    """What runs: a kernel, which is a SINK, or a COPY."""
    return self.call.src[0]

  @property
  def bufs(self) -> list[Buffer]:
    """The buffers, in the order of the kernel's PARAMs; of a copy, target and source."""
    return [buffer_of(uop) for uop in buffers_of(self.call)]

  @property
  def fixedvars(self) -> dict[str, int]:
    """The values of variables that were bound when this was scheduled, by name."""
    return {str(uop.src[0].arg[0]): int(uop) for uop in self.call.src[1:] if uop.op is Ops.BIND}

  @property
  def metadata(self) -> tuple[Metadata, ...]:
    """What is computed, each kind of operation once, in an order in which they can happen."""
    if self.ast.op is Ops.COPY:
      return (Metadata("copy"),)
    return tuple([Metadata(name) for name in dict.fromkeys(map(operation, self.ast.walk())) if name])

  @property
  def prg(self) -> Binary | None:
    """The compiled kernel, once there was `lower` or `run`; None for a copy."""
    return self._prg

  def lower(self) -> ExecItem:
    """Compile it, if that has not been done. Raises CompileError. Gives itself back."""
    launch = prepare(self.call)
    if isinstance(launch, KernelLaunch):
      self._prg = launch.loaded.binary
    return self

  def run(
    self, var_vals: Mapping[str, int] | None = None, wait: bool = False, do_update_stats: bool = True
  ) -> float | None:
    """Run it. `var_vals` are values of variables to take in place of those bound, names that it does not have aside;
    `wait` waits for the end and gives the seconds that it took; `do_update_stats` counts it in `GlobalCounters`.

    Raises RuntimeError, before anything happens, where the order does not allow it; ValueError for a value of a
    variable out of its bounds; and as `tiny_runtime.run`.
    """
    self._progress.check(self._number)
    arguments = [bound(uop, var_vals) if var_vals and uop.op is Ops.BIND else uop for uop in self.call.src[1:]]
    call = self.call.with_src((self.ast, *arguments))
    seconds = run(UOp(Ops.LINEAR, dtypes.void, (call,)), wait, do_update_stats)
    self._progress.note(self._number)
    return seconds


def bound(bind: UOp, values: Mapping[str, int]) -> UOp:
  """A BIND with the value that `values` has for its variable, if it has one."""
  name = bind.src[0].arg[0]
  return bind.src[0].bind(values[name]) if name in values else bind


def name_of(call: UOp) -> str:
  """The name of a kernel, or "copy"."""
  return "copy" if call.src[0].op is Ops.COPY else kernel_name(call.src[0])


def operation(u: UOp) -> str:
  """What a node of a kernel computes; empty where that is no value of a tensor, but a place or an access."""
  if dtypes.index in (u.dtype, *[s.dtype for s in u.src[:1]]):
    return ""
  if u.op is Ops.REDUCE:
    return REDUCTIONS[u.arg[0]]
  return NAMES.get(u.op, u.op.name.lower()) if u.op in GroupOp.Elementwise else ""


def exec_items(linear: UOp, temporaries: Collection[UOp] = ()) -> list[ExecItem]:
  """The calls of a schedule, `LINEAR(CALL…)`, as items. `temporaries` are BUFFERs that nothing but these look at."""
  if linear.op is not Ops.LINEAR:
    raise TypeError(f"exec_items takes a schedule (LINEAR), got {linear!r}")
  progress = Progress(linear.src, [name_of(call) for call in linear.src], temporaries)
  return [ExecItem(call, progress, number) for number, call in enumerate(linear.src)]


def run_schedule(
  schedule: Sequence[ExecItem], var_vals: Mapping[str, int] | None = None, do_update_stats: bool = True
) -> None:
  """Run items in the order given. Everything is compiled before anything runs; the arguments are those of
  `ExecItem.run`."""
  prepare_all([item.call for item in schedule])
  for item in schedule:
    item.run(var_vals, do_update_stats=do_update_stats)
