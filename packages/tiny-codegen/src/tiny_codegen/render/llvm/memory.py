"""INDEX, LOAD and STORE as LLVM IR: scalar, wide and scattered, with and without gates."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tiny_codegen.kernel.expressions import divisor
from tiny_codegen.kernel.memory import element_of, pointer_type, space_of
from tiny_codegen.render.llvm.alu import convert
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.text import Spaces, constant, memory_type, pointer, suffix, value_type
from tiny_uop import STREAMING, AddrSpace, DType, Ops, UOp, dtypes
from tiny_uop.records import dataclass

AVX_BITS = 256
LOCAL_ALIGNMENT = 16  # of the least array in shared memory
WIDE = " ; wide "
"""Stands between the alignment of an access that is certain, and the one it has if its buffer is aligned."""
PLAIN_ONLY, ALIGNED_ONLY = " ; where buffers are not aligned", " ; where buffers are aligned to "
"""Ends of lines that are in the body for buffers that are not aligned, and in the one for those that are (to so many
bytes)."""
PAIRED = " ; beside "
"""The same of an access to one element, which LLVM may join with its neighbours: no reason for a body of its own."""
PLAIN, STREAMED = ", align 1 ; streamed", ", align 64, !nontemporal !0"
"""Ends of a streaming store: in the body for buffers that are not aligned, and in the one for those that are."""


@dataclass(frozen=True)
class Memory:
  """How a target numbers its address spaces (GLOBAL, LOCAL, REG), whether it is a device that wants to know how far
  accesses are aligned, and to how many bytes those to GLOBAL memory have to be for vectors (0: not at all)."""

  spaces: Spaces
  device: bool = False
  aligned: int = 0


def _byte(dtype: DType) -> DType:
  """The type a value has in memory."""
  return dtypes.uint8.vec(dtype.count) if dtype.kind == "bool" else dtype


def _gate(index: UOp) -> UOp | None:
  gate = index.src[2] if len(index.src) > 2 else None
  return None if gate is not None and gate.op is Ops.CONST and gate.arg is True else gate


def distance(place: UOp) -> tuple[UOp, int] | None:
  """An offset as another one and a number of elements; None for one that is no such sum."""
  if place.op is not Ops.ADD or place.dtype.count > 1 or place.dtype.kind != "int" or place.src[1].op is not Ops.CONST:
    return None
  return place.src[0], place.src[1].arg


def only_distances(listed: Iterable[UOp]) -> frozenset[UOp]:
  """The sums of a program that nothing but addresses are made of: each is so many elements behind another offset."""
  sums, others = set[UOp](), set[UOp]()
  for u in listed:
    if u.op is Ops.INDEX and distance(u.src[1]) is not None:
      sums.add(u.src[1])
      others.update((u.src[0], *u.src[2:]))
    else:
      others.update(u.src)
  return frozenset(sums - others)


def address(
  body: Function, index: UOp, memory: Memory, inbounds: bool = True, offset: str | None = None
) -> tuple[str, str]:
  """(type, operand) of the address of an element, or of one at another offset; for a vector of offsets a vector of
  addresses, and the type of one."""
  kind, flags = pointer(pointer_type(index).space, memory.spaces), " inbounds" if inbounds else ""
  if offset is None and index.src[1] in body.distances and (parts := distance(index.src[1])) is not None:
    # neighbours as distances from one address, as instructions have them: LLVM would find that out, slowly. That
    # address may be outside of the memory
    element, key = memory_type(element_of(index)), (body.block, index.src[0], parts[0])
    if (near := body.addresses.get(key)) is None:
      first = f"{value_type(parts[0].dtype)} {body.operand(parts[0])}"
      near = body.let(f"getelementptr {element}, {kind} {body.operand(index.src[0])}, {first}")
      body.addresses[key] = near
    return kind, body.let(f"getelementptr {element}, {kind} {near}, i64 {parts[1]}")
  place, offset = index.src[1].dtype, offset or body.operand(index.src[1])
  if place.kind == "uint" and place.bits < 64:  # GEP reads its offset as signed
    wide = dtypes.int64.vec(place.count)
    offset, place = convert(body, offset, place, wide), wide
  element, base = memory_type(element_of(index)), body.operand(index.src[0])
  return kind, body.let(f"getelementptr{flags} {element}, {kind} {base}, {value_type(place)} {offset}")


def _alignment(index: UOp, stored: DType, memory: Memory) -> str:
  """What is said of an access to a value and those next to it: how far it is aligned."""
  element, pointed = stored.scalar().itemsize, pointer_type(index)
  plain = f", align {element}"
  if not memory.device or pointed.space is AddrSpace.REG or (stored.count == 1 and not memory.aligned):
    return plain
  known = divisor(index.src[1]) * pointed.base.itemsize
  if stored.count == 1:
    size = math.gcd(known, memory.aligned)
    return f"{plain}{PAIRED}{size}" if pointed.space is AddrSpace.GLOBAL and size > element else plain
  size = math.gcd(known, 1 << ((stored.count * element).bit_length() - 1))
  if pointed.space is AddrSpace.LOCAL:
    return f", align {min(size, LOCAL_ALIGNMENT)}"
  size = min(size, memory.aligned)
  return f"{plain}{WIDE}{size}" if size > element else plain


def _everywhere(body: Function, gate: UOp | None, count: int) -> str:
  """A mask of `count` lanes from no gate, a scalar one or a vector of them."""
  mask = dtypes.bool.vec(count)
  if gate is None:
    return constant(mask, True)
  if gate.dtype.count == count:
    return body.operand(gate)
  return body.splat(value_type(mask), "i1", body.operand(gate), count)


def _from_memory(body: Function, loaded: str, dtype: DType) -> str:
  return convert(body, loaded, _byte(dtype), dtype)


def _alternative(body: Function, load: UOp) -> str:
  return body.operand(load.src[1]) if len(load.src) > 1 else constant(load.dtype, 0)


def _masked(index: UOp, stored: DType, kind: str) -> tuple[str, str]:
  """(what the name of a masked access ends with, the type of its addresses), if `kind` is that of an address."""
  space = f"p{kind[len('ptr addrspace(') : -1] if 'addrspace' in kind else 0}"
  scattered = index.src[1].dtype.count > 1
  lanes, addresses = (f"v{stored.count}", f"<{stored.count} x {kind}>") if scattered else ("", kind)
  return f"{suffix(stored)}.{lanes}{space}", addresses


def _masked_load(body: Function, load: UOp, gate: UOp | None, memory: Memory) -> str:
  """Of adjacent elements, or of any (gather)."""
  stored, gathered = _byte(load.dtype), load.src[0].src[1].dtype.count > 1
  count, kind = stored.count, value_type(stored)
  one, place = address(body, load.src[0], memory, gate is None)
  other = convert(body, _alternative(body, load), load.dtype, stored)
  first = None if gathered or gate is None else _first_lanes(gate)
  mask = None if first is None else _hidden_mask(body, first, stored)
  if first is not None and mask is None:
    return _from_memory(body, _load_first(body, f"{one} {place}", stored, first, other), load.dtype)
  name, addresses = _masked(load.src[0], stored, one)
  # the alignment argument is how LLVM up to 21 wants it; newer versions read it too
  gates = value_type(dtypes.bool.vec(count)), mask or _everywhere(body, gate, count)
  if not gathered and gate is not None and not body.pin_masked_loads:
    parts = _open_parts(gate, stored)
    if parts is not None:
      return _from_memory(body, _load_parts(body, load.src[0], (one, place), gates, stored, parts, other), load.dtype)
  loaded = body.call(f"llvm.masked.{'gather' if gathered else 'load'}.{name}", kind, (addresses, place),
                     ("i32", str(stored.scalar().itemsize)), gates, (kind, other))  # fmt: skip
  pinned = body.pin_masked_loads and not gathered
  return _from_memory(body, _pinned(body, loaded, stored) if pinned else loaded, load.dtype)


def _may_open(gate: UOp) -> list[bool]:
  """For each lane of a gate, whether it is not known to be closed."""
  if gate.op is Ops.AND:
    return [a and b for a, b in zip(*map(_may_open, gate.src), strict=True)]
  if gate.op is Ops.CONST:
    return list(gate.arg) if isinstance(gate.arg, tuple) else [bool(gate.arg)] * gate.dtype.count
  if gate.op is Ops.VECTORIZE:
    return [lane.op is not Ops.CONST or bool(lane.arg) for lane in gate.src]
  return [True] * gate.dtype.count


def _open_parts(gate: UOp, stored: DType) -> list[range] | None:
  """The registers of a vector, as lanes, of which a gate may open some, where all lanes of others are known to be
  closed: such an other one LLVM (19 to 22.1) loads as if there were no mask, with AVX2. None where there are none."""
  lanes, opened = AVX_BITS // stored.scalar().bits, _may_open(gate)
  parts = [range(first, min(first + lanes, stored.count)) for first in range(0, stored.count, lanes)]
  found = [part for part in parts if len(opened) == stored.count and any(opened[lane] for lane in part)]
  return found if 0 < len(found) < len(parts) else None


def _load_parts(
  body: Function, index: UOp, place: tuple[str, str], mask: tuple[str, str], stored: DType, parts: list[range],
  other: str,
) -> str:  # fmt: skip
  """Some registers of a vector from memory under a mask, the lanes between them from another vector."""
  kind, scalar, count = value_type(stored), stored.scalar(), stored.count
  for part in parts:
    piece = scalar.vec(len(part))
    at = body.let(f"getelementptr {memory_type(scalar)}, {' '.join(place)}, i64 {part[0]}")
    gates = value_type(dtypes.bool.vec(len(part))), body.shuffle(*mask, part)
    name = f"llvm.masked.load.{_masked(index, piece, place[0])[0]}"
    loaded = body.call(name, value_type(piece), (place[0], at), ("i32", str(scalar.itemsize)), gates,
                       (value_type(piece), body.shuffle(kind, other, part)))  # fmt: skip
    wide = body.shuffle(value_type(piece), loaded, [n - part[0] if n in part else None for n in range(count)])
    other = body.shuffle(kind, wide, [n if n in part else count + n for n in range(count)], other)
  return other


def _first_lanes(gate: UOp) -> int | None:
  """How many lanes a gate opens that is known and opens the first ones, no others; None for any other gate."""
  known = gate.arg if gate.op is Ops.CONST else tuple([s.arg if s.op is Ops.CONST else None for s in gate.src])
  if gate.op not in (Ops.CONST, Ops.VECTORIZE) or not isinstance(known, tuple) or None in known:
    return None
  count = sum(known)
  return count if 0 < count and all(known[:count]) else None


def _load_first(body: Function, place: str, stored: DType, count: int, other: str) -> str:
  """A vector of which only the first lanes are in memory, as a shorter vector: LLVM (22.1) has no instruction for some
  masks that it knows, and then ends the process."""
  part, plain = stored.scalar().vec(count), f"align {stored.scalar().itemsize}"
  loaded = body.let(f"load {value_type(part)}, {place}, {plain}")
  if count == 1:
    return body.vector(value_type(stored), value_type(part), [loaded], other)
  wide = body.shuffle(value_type(part), loaded, [*range(count), *[None] * (stored.count - count)])
  lanes = [*range(count), *range(stored.count + count, 2 * stored.count)]
  return body.shuffle(value_type(stored), wide, lanes, other)


def _hidden_mask(body: Function, first: int, stored: DType) -> str | None:
  """A mask of the first lanes that LLVM does not know, made once, where there are mask registers; None for other
  vectors, and where a shorter one fills a register: others are put together of up to four pieces."""
  count = stored.count
  whole = first & (first - 1) == 0
  if whole or not body.pin_masked_loads or count not in (8, 16) or stored.scalar().bits < 32:
    return None
  if (first, count) not in body.masks:
    word, mask = body.fresh("%mask"), body.fresh("%mask")
    body.entry += [f'  {word} = call i{count} asm "", "=r,0"(i{count} {(1 << first) - 1})',
                   f"  {mask} = bitcast i{count} {word} to {value_type(dtypes.bool.vec(count))}"]  # fmt: skip
    body.masks[first, count] = mask
  return body.masks[first, count]


def _pinned(body: Function, value: str, kind: DType) -> str:
  """The same value, which LLVM has to have in registers before it is used.

  With AVX-512, LLVM (22.1) gives an operation under the same mask the memory operand of a masked load, where the mask
  still keeps it from touching what is not there; but taken apart again, to keep the operation's other operand, the load
  has lost its mask and faults.
  """
  scalar = kind.scalar()
  whole = scalar.vec(max(128 // scalar.bits, 1 << (kind.count - 1).bit_length()))
  filled = [*range(kind.count), *[None] * (whole.count - kind.count)]
  pinned = _in_registers(body, body.shuffle(value_type(kind), value, filled), whole)
  return body.shuffle(value_type(whole), pinned, range(kind.count))


def _in_registers(body: Function, value: str, kind: DType) -> str:
  if kind.count * kind.scalar().bits <= 512:
    text = value_type(kind)
    if kind.scalar().bits >= 32:
      return body.let(f'call {text} asm "", "=v,0"({text} {value})')
    # not every processor with AVX-512 has registers of narrower elements, which LLVM then has none for
    words = f"<{kind.count * kind.scalar().bits // 32} x i32>"
    pinned = body.let(f'call {words} asm "", "=v,0"({words} {body.cast_bits(text, value, words)})')
    return body.cast_bits(words, pinned, text)
  half = kind.scalar().vec(kind.count // 2)
  parts = range(half.count), range(half.count, kind.count)
  halves = [_in_registers(body, body.shuffle(value_type(kind), value, part), half) for part in parts]
  return body.shuffle(value_type(half), halves[0], range(kind.count), halves[1])


def _branch_load(body: Function, load: UOp, gate: UOp, memory: Memory) -> str:
  other, number, before = _alternative(body, load), body.fresh(""), body.block
  body.branch(body.operand(gate), f"then{number}", f"join{number}")
  body.label(f"then{number}")
  loaded = _plain_load(body, load, memory)
  inside = body.block
  body.emit(f"br label %join{number}")
  body.label(f"join{number}")
  return body.let(f"phi {value_type(load.dtype)} [ {loaded}, %{inside} ], [ {other}, %{before} ]")


def _plain_load(body: Function, load: UOp, memory: Memory, offset: str | None = None) -> str:
  index, stored = load.src[0], _byte(load.dtype)
  place = " ".join(address(body, index, memory, offset=offset))
  loaded = body.let(f"load {value_type(stored)}, {place}{_alignment(index, stored, memory)}")
  return _from_memory(body, loaded, load.dtype)


def load(body: Function, u: UOp, memory: Memory) -> str:
  """The operand that holds a LOAD's value.

  A scalar gate reads element 0 where it is false and drops it: no branch, so that unrolled loads stay in one block.
  That needs memory as large as the access; smaller memory gets a branch.
  """
  index, gate = u.src[0], _gate(u.src[0])
  place = index.src[1]
  if place.dtype.count > 1 or (gate is not None and gate.dtype.count > 1):
    return _masked_load(body, u, gate, memory)
  if gate is None:
    return _plain_load(body, u, memory)
  if pointer_type(index).size * element_of(index).count < u.dtype.count:
    return _branch_load(body, u, gate, memory)
  kind, flag, value = value_type(place.dtype), body.operand(gate), value_type(u.dtype)
  safe = body.let(f"select i1 {flag}, {kind} {body.operand(place)}, {kind} 0")
  loaded = _plain_load(body, u, memory, safe)
  return body.let(f"select i1 {flag}, {value} {loaded}, {value} {_alternative(body, u)}")


def _masked_store(body: Function, index: UOp, value: str, stored: DType, gate: UOp | None, memory: Memory) -> None:
  count, kind, mask = stored.count, value_type(stored), dtypes.bool.vec(stored.count)
  scattered = index.src[1].dtype.count > 1
  one, place = address(body, index, memory, gate is None)
  first = None if scattered or gate is None else _first_lanes(gate)
  if first is not None and first & (first - 1) == 0:
    return _store_first(body, f"{one} {place}", value, stored, first)
  name, addresses = _masked(index, stored, one)
  body.call(f"llvm.masked.{'scatter' if scattered else 'store'}.{name}", "void", (kind, value), (addresses, place),
            ("i32", str(stored.scalar().itemsize)), (value_type(mask), _everywhere(body, gate, count)))  # fmt: skip


def _store_first(body: Function, place: str, value: str, stored: DType, count: int) -> None:
  """The first lanes of a vector written as a shorter vector: under a mask of one lane of 16 bits, LLVM (22.1) writes 32
  of them."""
  part, lanes = value_type(stored.scalar().vec(count)), body.first(value, stored, count)
  body.emit(f"store {part} {lanes}, {place}, align {stored.scalar().itemsize}")


def store(body: Function, u: UOp, memory: Memory) -> None:
  """Write a STORE; under a scalar gate inside a branch."""
  index, value = u.src
  gate, stored = _gate(index), _byte(value.dtype)
  operand = convert(body, body.operand(value), value.dtype, stored)
  if index.src[1].dtype.count > 1 or (gate is not None and gate.dtype.count > 1):
    _masked_store(body, index, operand, stored, gate, memory)
    return
  number = body.fresh("")
  if gate is not None:
    body.branch(body.operand(gate), f"then{number}", f"join{number}")
    body.label(f"then{number}")
  place = " ".join(address(body, index, memory))
  alignment = PLAIN if u.arg == STREAMING else _alignment(index, stored, memory)
  body.emit(f"store {value_type(stored)} {operand}, {place}{alignment}")
  if gate is not None:
    body.emit(f"br label %join{number}")
    body.label(f"join{number}")


# *** atomic updates ***
# Atomic STOREs as LLVM IR: `atomicrmw`, of which nothing but that it is one step is asked (monotonic).
#
# A kernel's results are seen when it has ended, and what threads leave in shared memory behind a BARRIER, so that no
# update has to order any other access.


_OPERATIONS = {Ops.ADD: "add", Ops.AND: "and", Ops.OR: "or", Ops.XOR: "xor"}


def update(body: Function, store: UOp, memory: Memory, scopes: tuple[str, str]) -> None:
  """Write an atomic STORE, its gate open. `scopes` name who else may be at it, in GLOBAL and in LOCAL memory; empty:
  anybody."""
  index, value = store.src
  place = " ".join(address(body, index, memory))
  scope = scopes[space_of(index) is AddrSpace.LOCAL]
  among = f' syncscope("{scope}")' if scope else ""
  size = value.dtype.itemsize
  body.emit(
    f"atomicrmw {_operation(store)} {place}, {value_type(value.dtype)} {body.operand(value)}{among} monotonic, "
    f"align {size}"
  )


def _operation(store: UOp) -> str:
  op, dtype = store.arg.op, store.src[1].dtype
  if op is Ops.MAX:
    return "umax" if dtype.kind == "uint" else "max"
  return "fadd" if dtype.kind == "float" else _OPERATIONS[op]
