"""Compilers with one mistake each: they rewrite the kernel, and the reference compiles what comes out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from tiny_runtime import Binary, CompileError, Measure
from tiny_runtime.ref import RefCompiler, RefDevice
from tiny_runtime.ref.device import RefProgram
from tiny_uop import AddrSpace, AxisType, Ops, PtrDType, UOp, dtypes, print_uop
from wrong_backends import Backend

SMALLEST_NORMAL = 2.0**-126


class Rewriting(RefCompiler):
  """Replaces every node for which `wrong` gives another."""

  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    raise NotImplementedError

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    return super().compile(rewritten(kernel, self.wrong), measure)


def rewritten(kernel: UOp, wrong: Callable[[UOp], UOp | None]) -> UOp:
  done: dict[UOp, UOp] = {}
  for u in kernel.toposort:
    new = u.with_src(tuple(done[s] for s in u.src))
    other = wrong(new)
    done[u] = new if other is None else other
  return done[kernel]


def is_float(u: UOp) -> bool:
  return u.dtype is dtypes.float32


class ReciprocalDivision(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    return u.src[0] * UOp.const(u.dtype, 1.0).alu(Ops.FDIV, u.src[1]) if u.op is Ops.FDIV and is_float(u) else None


class RoundsTowardZero(Rewriting):
  """float32 → float16 by cutting off bits."""

  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    if u.op is not Ops.CAST or u.dtype is not dtypes.float16 or not is_float(u.src[0]):
      return None
    bits = u.src[0].bitcast(dtypes.uint32).alu(Ops.AND, UOp.const(dtypes.uint32, 0xFFFFE000))
    return bits.bitcast(dtypes.float32).cast(dtypes.float16)


class MaxLosesNaN(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    return (u.src[0] < u.src[1]).where(u.src[1], u.src[0]) if u.op is Ops.MAX and is_float(u) else None


class NegatesBySubtraction(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    negation = u.op is Ops.MUL and is_float(u) and u.src[1] is UOp.const(u.dtype, -1.0)
    return UOp.const(u.dtype, 0.0).alu(Ops.ADD, u) if negation else None


class FlushesSubnormals(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    if u.op is not Ops.MUL or not is_float(u):
      return None
    tiny = (u < SMALLEST_NORMAL) & (UOp.const(u.dtype, -SMALLEST_NORMAL) < u) & u.ne(0.0)
    return tiny.where(UOp.const(u.dtype, 0.0), u)


class DividesLikeC(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    return u.replace(op=Ops.TRUNCDIV) if u.op is Ops.FLOORDIV and u.dtype is dtypes.int32 else None


class LeavesOutTheLast(Rewriting):
  """Loops of more than 32 iterations end one too early."""

  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    size = u.src[0].arg if u.op is Ops.RANGE and u.src[0].op is Ops.CONST else 0
    return UOp.range(size - 1, *u.arg) if size > 32 and u.arg[1] is AxisType.LOOP else None


class GoesOneTooFar(Rewriting):
  """Loops of more than 32 iterations end one too late, and nothing checks bounds."""

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    return with_sizes(super().compile(kernel, measure), -1)

  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    if u.op is Ops.PARAM and isinstance(u.dtype, PtrDType):
      return UOp.param(int(u.arg), u.dtype.base.ptr(u.dtype.size + 1))
    if isinstance(u.dtype, PtrDType) and u.src and isinstance(u.src[0].dtype, PtrDType):
      return u.replace(dtype=u.src[0].dtype)
    size = u.src[0].arg if u.op is Ops.RANGE and u.src[0].op is Ops.CONST else 0
    return UOp.range(size + 1, *u.arg) if size > 32 and u.arg[1] is AxisType.LOOP else None


class ChecksNoBounds(RefDevice):
  def load(self, binary: Binary) -> RefProgram:
    return super().load(with_sizes(binary, 1))


def with_sizes(binary: Binary, more: int) -> Binary:
  return replace(binary, params=tuple(replace(param, size=param.size + more) for param in binary.params))


class LeavesOutBarriers(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    return (
      UOp(Ops.GROUP, dtypes.void, tuple(s for s in u.src if s.op is not Ops.RANGE)) if u.op is Ops.BARRIER else None
    )


class ThreadsHaveTheirOwnLocalMemory(Rewriting):
  @staticmethod
  def wrong(u: UOp) -> UOp | None:
    if u.op is Ops.ALLOC and isinstance(u.dtype, PtrDType):
      return UOp.alloc(int(u.arg), u.dtype.base.ptr(u.dtype.size, AddrSpace.REG))
    if isinstance(u.dtype, PtrDType) and u.src and isinstance(u.src[0].dtype, PtrDType):
      return u.replace(dtype=u.src[0].dtype)
    return None


class NumbersItsKernels(RefCompiler):
  """A counter gets into what it makes."""

  numbers = count()

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    binary = super().compile(kernel, measure)
    return replace(binary, source=f"# kernel {next(self.numbers)}\n{binary.source}")


class OrderedByHash(RefCompiler):
  """The order of a set gets into what it makes: the same in one process, another in the next."""

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    binary = super().compile(kernel, measure)
    names = {u.op.name for u in kernel.toposort}
    return replace(binary, source=f"# {' '.join(names)}\n{binary.source}")


class HoldsALock(RefCompiler):
  def __init__(self) -> None:
    self.lock = threading.Lock()


class SwallowsErrors(RefCompiler):
  """What cannot be compiled becomes a program that does nothing."""

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    try:
      return super().compile(kernel, measure)
    except CompileError:
      return super().compile(UOp.sink(arg=kernel.arg), measure)


class RefusesHalfs(RefCompiler):
  """No code for float16, which is claimed."""

  def compile(self, kernel: UOp, measure: Measure | None = None) -> Binary:
    if any(u.dtype is dtypes.float16 for u in kernel.toposort):
      raise CompileError("half is not supported", print_uop(kernel))
    return super().compile(kernel, measure)


RECIPROCAL = Backend(ReciprocalDivision)
TOWARD_ZERO = Backend(RoundsTowardZero)
MAX_NAN = Backend(MaxLosesNaN)
NEGATION = Backend(NegatesBySubtraction)
SUBNORMALS = Backend(FlushesSubnormals)
DIVISION = Backend(DividesLikeC)
TOO_SHORT = Backend(LeavesOutTheLast)
TOO_FAR = Backend(GoesOneTooFar, ChecksNoBounds)
NO_BARRIERS = Backend(LeavesOutBarriers)
NOT_SHARED = Backend(ThreadsHaveTheirOwnLocalMemory)
COUNTING = Backend(NumbersItsKernels)
HASH_ORDER = Backend(OrderedByHash)
UNPICKLABLE = Backend(HoldsALock)
SWALLOWING = Backend(SwallowsErrors)
NO_HALF = Backend(RefusesHalfs)
