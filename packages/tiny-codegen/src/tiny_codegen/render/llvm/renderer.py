"""Programs as LLVM IR text (opaque pointers; LLVM 15 and later read it, 22 is what we test with)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from tiny_codegen.instructions.tensor_core import MatrixLoad, TensorCore
from tiny_codegen.kernel.columns import column_of
from tiny_codegen.kernel.lazy_branches import branches
from tiny_codegen.kernel.memory import pointer_type
from tiny_codegen.render import base
from tiny_codegen.render.base import Renderer, Writer
from tiny_codegen.render.llvm import copies
from tiny_codegen.render.llvm import matrix as mma
from tiny_codegen.render.llvm.alu import elementwise
from tiny_codegen.render.llvm.dot import dot_product
from tiny_codegen.render.llvm.function import Function, begin_chunk, end_chunk, integer_from, is_thread_range, prepares
from tiny_codegen.render.llvm.memory import address, load, only_distances, store, update
from tiny_codegen.render.llvm.module import Module, workgroup
from tiny_codegen.render.llvm.shuffle import shuffled
from tiny_codegen.render.llvm.target import GENERIC, LLVMTarget
from tiny_codegen.render.llvm.text import memory_type, scalar_type, value_type
from tiny_codegen.render.llvm.tiles import TileRegisters, begin_tiles, end_tiles
from tiny_codegen.render.llvm.transpose import column, only_shuffled, picked, rows_of_lanes
from tiny_codegen.render.llvm.zeros import Zeros
from tiny_codegen.render.shared_memory import alignment, places_at_launch, reads_shared_memory
from tiny_uop import ASYNC, Accumulate, AddrSpace, GroupOp, Ops, ProgramInfo, PtrDType, UOp

# arguments are bound before the first instruction; an address is made where it is used: only there is it known how much
# is read and what a gate does
_NOTHING = frozenset({Ops.SINK, Ops.GROUP, Ops.CONST, Ops.AFTER, Ops.LINEAR, Ops.INDEX, Ops.PARAM, Ops.VARIABLE})


class LLVMRenderer(Renderer):
  """LLVM IR for one processor.

  Buffers of one program must not overlap unless they are only read: the body's pointers are `noalias`, but for those
  of buffers that threads of a workgroup exchange values through. Floating point
  is strict: no fast-math flags but that a maximum of two zeros may be either, and only MULACC is fused.
  """

  def __init__(self, llvm: LLVMTarget = GENERIC) -> None:
    self.llvm = llvm
    self.name = llvm.name
    self.target = llvm.target

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return _Program(self.llvm, linear, info).text()


class _Program(Writer):
  """One program on its way to text."""

  def __init__(self, llvm: LLVMTarget, linear: UOp, info: ProgramInfo) -> None:
    self.llvm, self.info, self.linear = llvm, info, linear
    near = only_distances(linear.src) if llvm.target.wide_offsets else frozenset()
    ops = {u.op for u in linear.src}  # what has nothing to look for need not look
    self.body = Function(
      pin_masked_loads="+avx512f" in llvm.features.split(","),
      instructions=llvm.instructions,
      distances=near,
      fence_halves=llvm.fence_halves,
    )
    self.unwritten = near | only_shuffled(linear.src if ops & {Ops.EXTRACT, Ops.VECTORIZE} else ())
    self.lazy = branches(linear.src if Ops.WHERE in ops else ())
    self.branches: dict[UOp, tuple[str, str]] = {}  # of open ones: what comes behind, and the block before
    self.zeros = Zeros(() if llvm.convention or Ops.WHERE not in ops else linear.src)
    self.globals: list[str] = self.zeros.globals
    self.at_launch = places_at_launch(linear, llvm.static_local)[0]
    self.tiles = reads_shared_memory(linear)
    self.exchanged = base.exchanged(linear) if Ops.BARRIER in ops else frozenset()
    self.registers = TileRegisters(linear.src if Ops.MMA in ops else ())
    self.continued = mma.continued(linear) if Ops.MMA in ops else frozenset()
    # loop → place, MMA, how to wait for it
    self.pending: dict[UOp, list[tuple[UOp, UOp, mma.SharedMatrixInstruction]]] = {}
    self.shared = [u for u in linear.src if is_thread_range(u)]
    self.dynamic = llvm.dynamic_scheduling and prepares(linear.src)
    if len(self.shared) > 1:
      raise NotImplementedError(
        f"{info.name} has {len(self.shared)} THREAD loops: one at most is shared between workers"
      )

  # *** the text ***

  def text(self) -> str:
    name = self.info.name
    for u, number in base.numbers(self.linear, self.info).items():
      self.body.values[u] = f"%p{number}" if u.op is Ops.PARAM else integer_from(self.body, f"%n{number}", u)
    if self.registers:
      begin_tiles(self.body, self.globals)
    self._instructions(self.linear.src)
    for u in reversed(self.body.open_loops):
      if u.op is not Ops.SPECIAL:
        raise ValueError(f"{name}: the loop of {u!r} is never closed")
      self.body.close_loop(u)
    if self.registers:
      end_tiles(self.body)
    sizes = workgroup(self.linear)
    exchanged = frozenset(int(u.arg) for u in self.exchanged)
    return Module(self.llvm, self.info, self.body, self.globals, sizes, bool(self.shared), exchanged).text()

  # *** instructions ***

  def _instructions(self, listed: Iterable[UOp]) -> None:
    """In their order, but for what stands in a branch."""
    later = {v for u in listed if u in self.lazy for v in self.lazy[u].values}
    for u in listed:
      if u.op not in _NOTHING and u not in later and u not in self.unwritten:
        self._instruction(u)

  def _instruction(self, u: UOp) -> None:
    if self.registers and self.registers.emit(self.body, u, self.llvm.tiles, self.llvm.memory):
      return
    if u in self.lazy:
      self._select_lazily(u)
    elif u in self.zeros.values:
      self.body.values[u] = self.body.operand(self.zeros.values[u])
    elif u.op in GroupOp.Elementwise:
      self.body.values[u] = elementwise(self.body, u)
      self.zeros.gate(self.body, u)
    else:
      self.visit(u)

  def _select_lazily(self, u: UOp) -> None:
    """A WHERE at which a branch stands that computes a side, of it and others, only if some lane takes it."""
    branch, condition = self.lazy[u], u.src[0]
    otherwise = self.body.operand(u.src[3 - branch.side]) if branch.wheres == (u,) else "poison"
    if branch.side == 1:  # some lane takes it
      taken = self._reduced("or", condition)
    else:
      taken = self.body.let(f"xor i1 {self._reduced('and', condition)}, true")
    self._begin_branch(u, taken, branch.values)
    if branch.wheres == (u,):
      self._end_branch(u, [(u, elementwise(self.body, u), otherwise)])  # the selection is inside
    else:
      # what the other lanes are does not matter
      self._end_branch(u, [(root, self.body.operand(root), otherwise) for root in branch.roots])
      self.body.values[u] = elementwise(self.body, u)

  def _reduced(self, how: str, flags: UOp) -> str:
    """Whether all ("and") or any ("or") lanes are true."""
    kind, lanes = value_type(flags.dtype), flags.dtype.count
    name = self.body.operand(flags)
    return name if lanes == 1 else self.body.call(f"llvm.vector.reduce.{how}.v{lanes}i1", "i1", (kind, name))

  def _begin_branch(self, u: UOp, condition: str, inside: tuple[UOp, ...]) -> None:
    """These instructions where a condition holds."""
    number = self.body.fresh("")
    self.branches[u] = f"none{number}", self.body.block
    self.body.branch(condition, f"some{number}", f"none{number}")
    self.body.label(f"some{number}")
    self._instructions(inside)

  def _end_branch(self, u: UOp, values: Iterable[tuple[UOp, str, str]]) -> None:
    """From now on each (value, name inside, name where the branch was not taken) is one of the two."""
    (done, before), last = self.branches.pop(u), self.body.block
    self.body.emit(f"br label %{done}")
    self.body.label(done)
    for v, made, otherwise in values:
      merged = f"phi {value_type(v.dtype)} [ {made}, %{last} ], [ {otherwise}, %{before} ]"
      self.body.values[v] = self.body.let(merged)

  def visit_alloc(self, u: UOp) -> None:
    assert isinstance(u.dtype, PtrDType)
    array = f"[{u.dtype.size} x {memory_type(u.dtype.base)}]"
    align = alignment(u, self.tiles)
    if u in self.at_launch:
      self.body.values[u] = self._at_launch(u)
      return
    if self.llvm.convention and u.dtype.space is AddrSpace.LOCAL:
      name = f"@{self.info.name}.local{u.arg}"
      number = self.llvm.spaces[1]
      self.globals.append(f"{name} = internal addrspace({number}) global {array} poison, align {align}")
    else:
      name = f"%m{u.arg}"
      number = self.llvm.spaces[2] if self.llvm.convention else 0
      self.body.entry.append(f"  {name} = alloca {array}, align {align}{f', addrspace({number})' if number else ''}")
    self.body.values[u] = name

  def _at_launch(self, u: UOp) -> str:
    """An array in the memory whose size the launch gives."""
    name, space = f"@{self.info.name}_shared", f"addrspace({self.llvm.spaces[1]})"
    if not self.globals:
      align = max(alignment(memory, self.tiles) for memory in self.at_launch)
      self.globals.append(f"{name} = external {space} global [0 x i8], align {align}")
    return self.body.let(f"getelementptr inbounds i8, ptr {space} {name}, i32 {self.at_launch[u]}")

  def visit_range(self, u: UOp) -> None:
    if u not in self.shared:
      self.body.open_loop(u, "0", self.body.operand(u.src[0]))
    else:
      ends = begin_chunk(self.body) if self.dynamic else ("%begin", "%end")
      self.body.open_loop(u, *[integer_from(self.body, end, u) for end in ends])

  def visit_end(self, u: UOp) -> None:
    for counter in reversed(u.src[1:]):
      self.body.close_loop(counter)
      if self.dynamic and counter in self.shared:
        end_chunk(self.body)
      for place, product, how in self.pending.pop(counter, ()):
        mma.there(self.body, place, product.dtype, how, self.llvm.memory)

  def visit_special(self, u: UOp) -> None:
    """A hardware counter; on a target without any, a loop around all that follows."""
    if (intrinsic := base.hardware_counter(self.llvm.name, self.llvm.counters, u)) is None:
      self.body.open_loop(u, "0", self.body.operand(u.src[0]))
      return
    size = u.src[0]
    known = f"range(i32 0, {size.arg})" if size.op is Ops.CONST else ""
    made, kind = self.body.call(intrinsic, "i32", flags=known), scalar_type(u.dtype)
    self.body.values[u] = made if kind == "i32" else self.body.let(f"zext i32 {made} to {kind}")

  def visit_load(self, u: UOp) -> None:
    if u in self.zeros.loads:
      self.body.values[u] = self.zeros.load(self.body, u)
      return
    if isinstance(u.arg, MatrixLoad):
      if not self.llvm.matrix_load:
        raise NotImplementedError(f"{self.llvm.name} has no instruction that loads matrices: {u!r}")
      place = address(self.body, u.src[0], self.llvm.memory)
      self.body.values[u] = mma.matrix_load(self.body, u, place, self.llvm.matrix_load)
      return
    self.body.values[u] = load(self.body, u, self.llvm.memory)

  def visit_store(self, u: UOp) -> None:
    if isinstance(u.arg, Accumulate):
      self.atomic(u)
      return
    if u.arg == ASYNC and self.llvm.copies is not None:
      at_once = partial(store, self.body, u, self.llvm.memory)
      copies.copy_to_shared(self.body, u, self.llvm.memory, self.llvm.copies, at_once)
    else:
      store(self.body, u, self.llvm.memory)

  def visit_prefetch(self, u: UOp) -> None:
    """A hint, which devices are not given."""
    if self.llvm.convention:
      return
    access, level = u.arg
    place, *otherwise = [address(self.body, s, self.llvm.memory, False)[1] for s in u.src]
    for other in otherwise:
      place = self.body.let(f"select i1 {self.body.operand(u.src[0].src[2])}, ptr {place}, ptr {other}")
    # LLVM's locality: 3 is the first level; the last 1 says that it is data
    flags = (str(int(access == "write")), str(max(4 - level, 0)), "1")
    self.body.call("llvm.prefetch.p0", "void", ("ptr", place), *[("i32", flag) for flag in flags])

  def atomic(self, u: UOp) -> None:
    """An update by several threads; a gate is an IF around it already (`linearise`)."""
    if not self.llvm.target.has_atomic(pointer_type(u.src[0]).space, u.arg.op, u.src[1].dtype):
      raise base.no_atomic(self.llvm.name, u)
    update(self.body, u, self.llvm.memory, self.llvm.scopes)

  def visit_vectorize(self, u: UOp) -> None:
    kind = value_type(u.dtype)
    if (pair := rows_of_lanes(u)) is not None:
      made = picked(self.body, *pair)
    elif all(s is u.src[0] for s in u.src):
      made = self.body.splat(kind, scalar_type(u.dtype), self.body.operand(u.src[0]), len(u.src))
    else:
      made = self.body.vector(kind, scalar_type(u.dtype), [lane for s in u.src for lane in self._each_lane(s)])
    self.body.values[u] = made

  def _each_lane(self, u: UOp) -> Iterable[str]:
    value, kind = self.body.operand(u), value_type(u.dtype)
    return [value] if u.dtype.count == 1 else [self.body.lane(kind, value, lane) for lane in range(u.dtype.count)]

  def visit_extract(self, u: UOp) -> None:
    if (square := column_of(u)) is not None:
      self.body.values[u] = column(self.body, *square)
      return
    source, kind = u.src[0], value_type(u.src[0].dtype)
    lanes = u.arg if isinstance(u.arg, tuple) else (u.arg,)
    value = self.body.operand(source)
    if source.dtype.count > 1:  # not lane 0 of a scalar
      value = self.body.lane(kind, value, lanes[0]) if len(lanes) == 1 else self.body.shuffle(kind, value, lanes)
    self.body.values[u] = value

  def visit_if(self, u: UOp) -> None:
    number = self.body.fresh("")
    self.body.values[u] = f"fi{number}"
    self.body.branch(self.body.operand(u.src[0]), f"if{number}", f"fi{number}")
    self.body.label(f"if{number}")

  def visit_endif(self, u: UOp) -> None:
    label = self.body.operand(u.src[0])
    self.body.emit(f"br label %{label}")
    self.body.label(label)

  def visit_barrier(self, u: UOp) -> None:
    """One thread has always passed its own barrier; threads that are loops here cannot meet."""
    if not self.llvm.barrier and any(loop.op is Ops.SPECIAL for loop in self.body.open_loops):
      raise base.no_barrier(self.info.name, self.llvm.name)
    if u.arg is not None and self.llvm.copies is not None:
      copies.wait_for_copies(self.body, u.arg, self.llvm.copies)
    barrier = self.llvm.barrier if self.exchanged else self.llvm.local_barrier or self.llvm.barrier
    for line in (*(self.llvm.proxy_fence if self.tiles else ()), *barrier):
      self.body.emit(line)

  def visit_mma(self, u: UOp) -> None:
    if (dot := next((d for d in self.llvm.dots if d.product == u.arg), None)) is not None:
      self.body.values[u] = dot_product(self.body, u, dot)
    elif isinstance(u.arg, TensorCore) and u.arg.shared is not None:
      if u not in self.continued:
        self._products_of_shared_memory(u)
    elif (matrix := next((m for m in self.llvm.matrices if m.core == u.arg), None)) is not None:
      self.body.values[u] = mma.matrix_product(self.body, u, matrix)
    else:
      raise base.no_tensor_core(self.llvm.name, u)

  def visit_shuffle(self, u: UOp) -> None:
    if (found := shuffled(self.body, u, self.llvm.exchanges)) is None:
      raise base.no_exchange(self.llvm.name, u)
    self.body.values[u] = found

  def _products_of_shared_memory(self, last: UOp) -> None:
    """A chain of MMAs that add to the same accumulators, all of which is on its way before the first is waited for."""
    chain = [last]
    while chain[0].src[2] in self.continued:
      chain.insert(0, chain[0].src[2])
    same = replace(last.arg, shared=mma.SHARED, pending=0)
    matrix = next((m for m in self.llvm.shared_matrices if m.core == same), None)
    if matrix is None:
      raise base.no_tensor_core(self.llvm.name, last)
    if last.arg.pending:
      loop = next(r for r in reversed(self.body.open_loops) if r.op is Ops.RANGE)
      self.pending.setdefault(loop, []).append((chain[0].src[2].src[0], last, matrix))
    self.body.values[last] = mma.shared_product(self.body, chain, matrix, self.llvm.memory)
