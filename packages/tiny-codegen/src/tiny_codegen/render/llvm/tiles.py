"""Matrix instructions of processors, whose operands are registers of their own, in LLVM IR: Intel's AMX.

Tile registers have numbers here, given out in the order of the program, and not LLVM's values of type x86_amx: LLVM
would have to find out what is configured, and spill. The body of a program says at its beginning what tiles look like,
and gives them back at its end, so that a thread that waits has no state of them to be saved.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.instructions.dot_product import MatrixProduct, TileRows
from tiny_codegen.kernel.memory import in_register
from tiny_codegen.render.llvm.dot import S8, S32, U8, U32
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import Memory, address
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.graph import memory_of
from tiny_uop.records import dataclass

REGISTERS = 8
ROWS, ROW_BYTES = 16, 64
_SETTING = bytes([1, *[0] * 15, *[ROW_BYTES, 0] * REGISTERS, *[0] * 16, *[ROWS] * REGISTERS, *[0] * 8])
"""Of LDTILECFG: palette 1, bytes of a row and rows of each register (Intel's manual, volume 2, LDTILECFG)."""
CONFIGURATION = "@tiles"


@dataclass(frozen=True)
class TileInstruction:
  """`name` is LLVM's intrinsic. `rate` as in DotInstruction: of vectors of one row and step."""

  product: MatrixProduct
  name: str
  rate: float


def x86_matrix_products(on: frozenset[str]) -> tuple[TileInstruction, ...]:
  """Those of an x86 processor with these features: 16 rows, columns and words in 16 cycles, in which other units start
  32 multiply-adds of vectors. TDPBF16PS takes and gives numbers below 2**-126 as 0."""
  found = []
  if "amx-tile" in on and "amx-bf16" in on:
    found.append((dtypes.bfloat16, dtypes.bfloat16, dtypes.float32, "tdpbf16ps"))
  if "amx-tile" in on and "amx-int8" in on:
    found += [(S8, S8, S32, "tdpbssd"), (U8, S8, S32, "tdpbusd"), (S8, U8, S32, "tdpbsud"), (U8, U8, U32, "tdpbuud")]
  return tuple([TileInstruction(MatrixProduct(a, b, c), f"llvm.x86.{name}", 8.0) for a, b, c, name in found])


def is_product(u: UOp) -> bool:
  """Whether a node is a matrix instruction's."""
  return u.op is Ops.MMA and isinstance(u.arg, MatrixProduct)


class TileRegisters:
  """Which values of a program are in tile registers, and in which. Raises NotImplementedError if there are too few."""

  def __init__(self, linear: Sequence[UOp]) -> None:
    self.registers: dict[UOp, int] = {}
    """Of what has one: a tile that was loaded, the memory of an accumulator, a product that adds to nothing."""
    self.values = {u for u in linear if is_product(u) or isinstance(u.arg, TileRows)}
    self.memory = {memory_of(u.src[0]) for u in linear if u.op is Ops.STORE and is_product(u.src[1]) and in_register(u)}
    self.values.update(u for u in linear if u.op is Ops.LOAD and memory_of(u.src[0]) in self.memory)
    if self.values:
      self._give_out(linear)

  def __bool__(self) -> bool:
    return bool(self.values)

  def _holder(self, u: UOp) -> UOp | None:
    """What has the register that an instruction writes or reads first; None for one that has to do with none."""
    while is_product(u) and u.src[2].op is not Ops.CONST:
      u = u.src[2]  # it is added to
    if u.op in (Ops.LOAD, Ops.STORE) and (memory := memory_of(u.src[0])) in self.memory:
      return memory
    return u if u in self.values else None

  def _give_out(self, linear: Sequence[UOp]) -> None:
    """Each register is free again behind the last use of what it holds, or behind the loop, if that began outside."""
    free, last, ending = list(range(REGISTERS)), self._last_uses(linear), dict[int, list[int]]()
    for place, u in enumerate(linear):
      holder = self._holder(u)
      if holder is not None and holder not in self.registers:
        if not free:
          raise NotImplementedError(f"a program needs more than {REGISTERS} tile registers at a time")
        self.registers[holder] = free.pop(0)
        ending.setdefault(last[holder], []).append(self.registers[holder])
      free += ending.pop(place, [])  # the one that has been free for longest is taken first

  def _last_uses(self, linear: Sequence[UOp]) -> dict[UOp, int]:
    ends = {u.src[1]: place for place, u in enumerate(linear) if u.op is Ops.END}
    around: dict[UOp, tuple[UOp, ...]] = {}
    loops: list[UOp] = []
    last: dict[UOp, int] = {}
    for place, u in enumerate(linear):
      if u.op is Ops.RANGE:
        loops.append(u)
      elif u.op is Ops.END:
        loops.remove(u.src[1])
      else:
        used = [u, *(s for s in u.src if s in self.values)]
        for holder in [holder for holder in map(self._holder, used) if holder is not None]:
          inside = [r for r in loops if r not in around.setdefault(holder, tuple(loops))]
          last[holder] = max([place, last.get(holder, 0), *[ends[r] for r in inside[:1]]])
    return last

  def of(self, u: UOp) -> int:
    """The register of a tile."""
    holder = self._holder(u)
    assert holder is not None
    return self.registers[holder]

  def emit(self, body: Function, u: UOp, instructions: Sequence[TileInstruction], memory: Memory) -> bool:
    """Write an instruction that has to do with tiles; False for any other."""
    if isinstance(u.arg, TileRows):
      place = address(body, u.src[0], memory)
      nbytes = u.arg.stride * u.dtype.scalar().itemsize
      body.call("llvm.x86.tileloadd64", "void", _number(self.of(u)), place, ("i64", str(nbytes)))
    elif is_product(u):
      how = next((i for i in instructions if i.product == u.arg), None)
      if how is None:
        return False  # which is an error
      if u in self.registers:
        body.call("llvm.x86.tilezero", "void", _number(self.of(u)))
      body.call(how.name, "void", _number(self.of(u)), *[_number(self.of(s)) for s in u.src[:2]])
    elif u.op is Ops.STORE and memory_of(u.src[0]) in self.memory:
      if u.src[1].op is Ops.CONST:
        body.call("llvm.x86.tilezero", "void", _number(self.of(u)))
    elif u.op is Ops.STORE and u.src[1] in self.values:
      place = address(body, u.src[0], memory)
      body.call("llvm.x86.tilestored64", "void", _number(self.of(u.src[1])), place, ("i64", str(ROW_BYTES)))
    else:
      return u in self.values or u in self.memory
    return True


def begin_tiles(body: Function, globals: list[str]) -> None:
  """Say what tiles look like."""
  text = "".join(f"\\{byte:02x}" for byte in _SETTING)
  globals.append(f'{CONFIGURATION} = private constant [{len(_SETTING)} x i8] c"{text}", align {ROW_BYTES}')
  body.call("llvm.x86.ldtilecfg", "void", ("ptr", CONFIGURATION))


def end_tiles(body: Function) -> None:
  """Give the registers back."""
  body.call("llvm.x86.tilerelease", "void")


def _number(register: int) -> tuple[str, str]:
  return "i8", str(register)
