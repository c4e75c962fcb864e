"""The one thing a renderer does: turn a linear program into text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from tiny_codegen.target import Target
from tiny_uop import Ops, ProgramInfo, UOp
from tiny_uop.graph import memory_of


class Renderer(ABC):
  """A target of code generation. Renderers are plain data (picklable, comparable by `name`), and need no device."""

  name: str
  """What it writes for, in errors and in ProgramInfo."""
  target: Target

  @abstractmethod
  def render(self, linear: UOp, info: ProgramInfo) -> str:
    """The source text of a program-level LINEAR. `info` gives its name, its buffers and its variables, in ABI order.

    Raises NotImplementedError, naming the instruction, for what `target` does not promise.
    """


class Writer:
  """Writes instructions one by one: its method `visit_load` those of LOAD, and so on."""

  def visit(self, u: UOp) -> None:
    """Write an instruction. Raises NotImplementedError for one that programs do not have."""
    write = getattr(self, f"visit_{u.op.name.lower()}", None)
    if write is None:
      raise NotImplementedError(
        f"{u.op.name} is no instruction of a program: {u!r} should have been lowered before rendering"
      )
    write(u)


def numbers(linear: UOp, info: ProgramInfo) -> dict[UOp, int]:
  """The number of each PARAM and VARIABLE of a program among the buffers, or integers, that it is called with. Raises
  ValueError for one that its ProgramInfo does not list."""
  slots, names = [p.slot for p in info.params], list(info.variables)
  found: dict[UOp, int] = {}
  for u in linear.src:
    if u.op is Ops.PARAM:
      if u.arg not in slots:
        raise ValueError(f"{info.name} uses buffer slot {u.arg}, its ProgramInfo lists slots {sorted(slots)}")
      found[u] = slots.index(u.arg)
    elif u.op is Ops.VARIABLE:
      if u.arg[0] not in names:
        raise ValueError(f"{info.name} uses variable {u.arg[0]!r}, its ProgramInfo lists {names}")
      found[u] = names.index(u.arg[0])
  return found


def exchanged(linear: UOp) -> frozenset[UOp]:
  """The PARAMs through which threads of a workgroup exchange values: they are read and written, one of it after a
  BARRIER."""
  meetings: set[UOp] = set()
  behind: set[UOp] = set()
  for u in linear.src:
    if u.op is Ops.BARRIER or (u.op in (Ops.END, Ops.GROUP) and not meetings.isdisjoint(u.src)):
      meetings.add(u)
    elif u.op in (Ops.LOAD, Ops.STORE) and meetings and _is_after(u.src[0], meetings):
      behind.add(memory_of(u.src[0]))
  if not behind:
    return frozenset()
  read, written = ({memory_of(u.src[0]) for u in linear.src if u.op is op} for op in (Ops.LOAD, Ops.STORE))
  return frozenset(u for u in behind & read & written if u.op is Ops.PARAM)


def _is_after(pointer: UOp, effects: Collection[UOp]) -> bool:
  """Whether what is there has to come after one of these effects."""
  while pointer.op in (Ops.INDEX, Ops.AFTER):
    if pointer.op is Ops.AFTER and any(s in effects for s in pointer.src[1:]):
      return True
    pointer = pointer.src[0]
  return False


def hardware_counter(target: str, counters: Sequence[tuple[str, str]], special: UOp) -> str | None:
  """How a target reads the counter of a SPECIAL; None for a target without any."""
  if counters and special.arg not in dict(counters):
    raise NotImplementedError(f"{target} has no counter {special.arg!r}: it has {[n for n, _ in counters]}")
  return dict(counters).get(special.arg)


def used_too_early(u: UOp) -> ValueError:
  """The error for a value that a LINEAR uses before it lists it."""
  return ValueError(f"{u!r} is used before it is computed: a LINEAR lists every value before its uses")


def no_barrier(name: str, target: str) -> NotImplementedError:
  """The error for a BARRIER of threads that are loops."""
  return NotImplementedError(f"{name} has a barrier between threads, which {target} runs one after another")


def no_tensor_core(target: str, mma: UOp) -> NotImplementedError:
  """The error for an MMA that a target has no instruction for."""
  return NotImplementedError(
    f"{target} has no tensor-core instruction {mma.arg}: its Target should not list it in tensor_cores, "
    "or its dialect has to say how it is written"
  )


def no_atomic(target: str, store: UOp) -> NotImplementedError:
  """The error for an atomic STORE that a target has no instruction for."""
  return NotImplementedError(
    f"{target} has no atomic {store.arg.op.name} to {store.src[0].dtype}: its Target should have it in atomics, "
    "and its target or dialect say how it is written, or the kernel should not ask for it"
  )


def no_exchange(target: str, shuffle: UOp) -> NotImplementedError:
  """The error for a SHUFFLE that a target has no instruction for."""
  return NotImplementedError(
    f"{target} has no exchange of {shuffle.dtype} between threads whose numbers differ by the bits {shuffle.arg:#x}: "
    "its Target should not have so large a wave, or its target or dialect has to say how it is written"
  )
