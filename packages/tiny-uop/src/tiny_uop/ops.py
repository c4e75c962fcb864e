"""The operations of the IR, in groups. The README's tables say what each takes and means."""

from __future__ import annotations

import sys
from enum import Enum, EnumMeta, auto
from typing import TypeVar


class Named(Enum):
  """An enumeration whose members are printed as in a program: `Ops.ADD`."""

  # members are singletons: hashing and equality by identity is several times faster than by name
  __hash__ = object.__hash__

  def __repr__(self) -> str:
    return f"{type(self).__name__}.{self.name}"


class _Members(type):
  """`EnumMeta` without its `__getattr__`, which Python 3.12 removed: with it, to read a member (`Ops.ADD`) takes ten
  times as long as any attribute of a class, and that is a sixth of a compilation."""

  __members__ = vars(EnumMeta)["__members__"]
  __call__, __contains__, __getitem__ = EnumMeta.__call__, EnumMeta.__contains__, EnumMeta.__getitem__
  __iter__, __len__, __reversed__ = EnumMeta.__iter__, EnumMeta.__len__, EnumMeta.__reversed__
  __bool__, __dir__, __repr__ = EnumMeta.__bool__, EnumMeta.__dir__, EnumMeta.__repr__

  def __setattr__(cls, name: str, value: object) -> None:
    if name in cls.__members__:
      raise AttributeError(f"cannot reassign member {name!r}")
    super().__setattr__(name, value)

  def __delattr__(cls, name: str) -> None:
    if name in cls.__members__:
      raise AttributeError(f"{cls.__name__!r} cannot delete member {name!r}.")
    super().__delattr__(name)


Enumeration = TypeVar("Enumeration", bound=type[Named])


def members(cls: Enumeration) -> Enumeration:
  """Decorator: the members of the enumeration are read as quickly as other attributes of classes."""
  if sys.version_info < (3, 12):
    cls.__class__ = _Members  # type: ignore[method-assign, assignment]  # of a class, not of a method
  return cls


@members
class Ops(Named):
  """What a node does. See the package README for sources, argument and meaning of each."""

  # structure
  SINK = auto()
  GROUP = auto()
  LINEAR = auto()
  CALL = auto()
  PROGRAM = auto()
  SOURCE = auto()
  # leaves
  CONST = auto()
  VARIABLE = auto()
  BIND = auto()
  DEVICE = auto()
  BUFFER = auto()
  BUFFER_VIEW = auto()
  PARAM = auto()
  ALLOC = auto()
  RANGE = auto()
  SPECIAL = auto()
  # movement
  RESHAPE = auto()
  EXPAND = auto()
  PERMUTE = auto()
  PAD = auto()
  SHRINK = auto()
  FLIP = auto()
  # tensor level
  REDUCE = auto()
  CONTIGUOUS = auto()
  CONTIGUOUS_BACKWARD = auto()
  DETACH = auto()
  CUSTOM_GRADIENT = auto()
  COPY = auto()
  MULTI = auto()
  # effects and memory
  STORE = auto()
  AFTER = auto()
  INDEX = auto()
  LOAD = auto()
  END = auto()
  STAGE = auto()
  BARRIER = auto()
  MMA = auto()
  COLLECTIVE = auto()
  NATIVE = auto()
  SHUFFLE = auto()
  # program level
  VECTORIZE = auto()
  EXTRACT = auto()
  IF = auto()
  ENDIF = auto()
  PREFETCH = auto()
  # elementwise: unary
  CAST = auto()
  BITCAST = auto()
  NEG = auto()
  EXP2 = auto()
  LOG2 = auto()
  EXP = auto()
  LOG = auto()
  SIN = auto()
  COS = auto()
  SQRT = auto()
  TRUNC = auto()
  # elementwise: binary
  ADD = auto()
  SUB = auto()
  MUL = auto()
  FDIV = auto()
  LDEXP = auto()
  FLOORDIV = auto()
  FLOORMOD = auto()
  TRUNCDIV = auto()
  TRUNCMOD = auto()
  MAX = auto()
  CMPLT = auto()
  CMPNE = auto()
  CMPEQ = auto()
  AND = auto()
  OR = auto()
  XOR = auto()
  SHL = auto()
  SHR = auto()
  THREEFRY = auto()
  # elementwise: ternary
  WHERE = auto()
  MULACC = auto()


class GroupOp:
  """Sets of operations."""

  Convert = frozenset({Ops.CAST, Ops.BITCAST})
  Transcendental = frozenset({Ops.EXP2, Ops.LOG2, Ops.EXP, Ops.LOG, Ops.SIN, Ops.COS})
  Unary = frozenset({*Convert, *Transcendental, Ops.NEG, Ops.SQRT, Ops.TRUNC})
  Compare = frozenset({Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ})
  Binary = frozenset({*Compare, Ops.ADD, Ops.SUB, Ops.MUL, Ops.FDIV, Ops.LDEXP, Ops.FLOORDIV, Ops.FLOORMOD,
                      Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR,
                      Ops.THREEFRY})  # fmt: skip
  Ternary = frozenset({Ops.WHERE, Ops.MULACC})
  Elementwise = Unary | Binary | Ternary
  ALU = Elementwise - Convert
  Commutative = frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR})
  Movement = frozenset({Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.PAD, Ops.SHRINK, Ops.FLIP})
  Identity = frozenset({Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD, Ops.DETACH})
  Effect = frozenset({Ops.STORE, Ops.END, Ops.GROUP, Ops.SINK, Ops.BARRIER, Ops.IF, Ops.ENDIF, Ops.PREFETCH})
