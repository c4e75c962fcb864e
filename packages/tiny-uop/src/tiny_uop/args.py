"""The records that stand in a node's `arg`. They are literals: frozen, hashable and printed by the textual form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from tiny_uop.dtype import AddrSpace, DType


class AxisType(Enum):
  """What a loop is for. The scheduler makes LOOP and REDUCE; the optimiser makes the others of them."""

  LOOP = "loop"
  REDUCE = "reduce"
  THREAD = "thread"
  GLOBAL = "global"
  LOCAL = "local"
  GROUP = "group"
  UPCAST = "upcast"
  UNROLL = "unroll"
  VECTOR = "vector"

  __hash__ = object.__hash__

  def __repr__(self) -> str:
    return f"AxisType.{self.name}"


class OptOps(Enum):
  """The optimisations that codegen knows; see tiny-codegen."""

  UPCAST = "upcast"
  UNROLL = "unroll"
  VECTOR = "vector"
  LOCAL = "local"
  GROUP = "group"
  THREAD = "thread"
  TC = "tc"
  PADTO = "padto"
  SWAP = "swap"
  STAGE = "stage"
  NOLOCALS = "nolocals"

  __hash__ = object.__hash__

  def __repr__(self) -> str:
    return f"OptOps.{self.name}"


@dataclass(frozen=True)
class Opt:
  """One optimisation choice: what, on which axis (position among the kernel's loops), with which argument."""

  op: OptOps
  axis: int | None = None
  arg: int | tuple[int, ...] | None = None


@dataclass(frozen=True)
class KernelInfo:
  """Argument of a kernel's SINK. `opts` None means the optimiser chooses; a tuple is applied as given."""

  name: str = "kernel"
  opts: tuple[Opt, ...] | None = None


@dataclass(frozen=True)
class Stage:
  """Argument of STAGE: the memory that the tile is kept in, and how many copies of it.

  `copies` 2 asks for double buffering; it is a permission, and tiny-codegen keeps one copy so far.
  """

  space: AddrSpace = AddrSpace.LOCAL
  copies: int = 1


@dataclass(frozen=True)
class ParamInfo:
  """One buffer argument of a program: PARAM slot, element type, size in elements, whether it is written / read."""

  slot: int
  dtype: DType
  size: int
  written: bool
  read: bool


@dataclass(frozen=True)
class ProgramInfo:
  """Argument of PROGRAM: how to call it. Integers are passed in the order of `variables`."""

  name: str
  target: str
  params: tuple[ParamInfo, ...]
  variables: tuple[str, ...]


ARG_TYPES: dict[str, type] = {
  t.__name__: t for t in (AxisType, AddrSpace, OptOps, Opt, KernelInfo, Stage, ParamInfo, ProgramInfo)
}

_T = TypeVar("_T", bound=type)


def register_arg(cls: _T) -> _T:
  """Class decorator: lets a frozen dataclass or an enum stand in `UOp.arg`; the textual form prints it by name.

  Raises ValueError when another class has taken the name.
  """
  if ARG_TYPES.setdefault(cls.__name__, cls) is not cls:
    raise ValueError(f"an argument class named {cls.__name__!r} is already registered: {ARG_TYPES[cls.__name__]!r}")
  return cls
