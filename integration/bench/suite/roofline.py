"""What the machine can do at most: fused multiply-adds in registers, and streams through memory.

The loops are written in LLVM IR, compiled as kernels are, and launched on the same thread pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Any

from tiny_codegen.render.llvm.dot import DotInstruction
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.tiles import REGISTERS, TileInstruction, begin_tiles, end_tiles
from tiny_runtime import Binary
from tiny_runtime.llvm import compile_object
from tiny_runtime_cpu import CPUDevice, host_arch
from tiny_runtime_cpu.compiler import renderer_for
from tiny_uop import ParamInfo, UOp, dtypes

ROUNDS = 4096  # of the loop of multiply-adds, for each part of a launch
BLOCK = 16384  # floats of a block of a stream, and parts of one that are gone through together: powers of two
PARTS = 4
STREAMS = {"read": 1, "copy": 2, "triad": 3}
"""Arrays that each stream goes through: s = Σ a; b = a; c = a + 0.5·b."""


def vector_width() -> int:
  """float32 lanes of the machine's registers."""
  arch = host_arch()
  return 16 if arch.has("avx512f") else 8 if arch.has("avx") else 4


def registers() -> int:
  """Accumulators that fit into registers, and are enough to hide the latency of a multiply-add."""
  return 24 if host_arch().has("avx512f") or host_arch().family == "aarch64" else 12


def _function(body: str, declarations: str = "") -> str:
  arguments = "ptr %buffers, ptr %integers, i64 %begin, i64 %end, ptr %claim, ptr %pool"
  return f"define void @roof({arguments}) {{\nentry:\n{body}}}\n{declarations}"


def _sum_and_store(vector: str, values: Sequence[str]) -> str:
  """Adds up vectors and stores the sum at the element %begin of the first buffer, so that they are needed."""
  lines, total = [], values[0]
  for number, value in enumerate(values[1:]):
    lines.append(f"  %total{number} = fadd {vector} {total}, {value}")
    total = f"%total{number}"
  lines += ["  %out = load ptr, ptr %buffers", f"  %place = getelementptr {vector}, ptr %out, i64 %begin"]
  lines += [f"  store {vector} {total}, ptr %place, align 4", "  ret void"]
  return "\n".join(lines) + "\n"


def chains_text(vector: str, step: str, declaration: str, count: int) -> str:
  """`count` independent chains of an instruction; each part of the launch is ROUNDS long. `step` is the instruction,
  with {} for the value that it goes on from."""
  number = "float {}.0" if "float" in vector else "i32 {}"
  loop = [f"  %first = mul i64 %begin, {ROUNDS}", f"  %last = mul i64 %end, {ROUNDS}", "  br label %loop", "loop:"]
  loop.append("  %i = phi i64 [%first, %entry], [%next, %loop]")
  loop += [f"  %a{k} = phi {vector} [splat ({number.format(k)}), %entry], [%b{k}, %loop]" for k in range(count)]
  loop += [f"  %b{k} = {step.format(f'%a{k}')}" for k in range(count)]
  loop += ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %last"]
  loop += ["  br i1 %more, label %loop, label %done", "done:"]
  floats = vector.replace("i32", "float")
  loop += [f"  %f{k} = bitcast {vector} %b{k} to {floats}" for k in range(count)]
  return _function("\n".join(loop) + "\n" + _sum_and_store(floats, [f"%f{k}" for k in range(count)]), declaration)


def fma_text(width: int, count: int) -> str:
  """Chains of multiply-adds of float32."""
  vector, name = f"<{width} x float>", f"@llvm.fma.v{width}f32"
  step = f"call {vector} {name}({vector} {{}}, {vector} splat (float 0.5), {vector} splat (float 1.0))"
  return chains_text(vector, step, f"declare {vector} {name}({vector}, {vector}, {vector})\n", count)


def dot_text(instruction: DotInstruction, count: int) -> str:
  """Chains of an instruction that adds products of narrow numbers to wide ones, in its widest form."""
  lanes, name = instruction.names[0]
  product = instruction.product
  vector = f"<{lanes} x {'float' if product.dtype_out.kind == 'float' else 'i32'}>"
  narrow = "bfloat" if product.dtype_a.kind == "float" else "i8"
  terms = f"<{lanes} x i32>" if instruction.words else f"<{lanes * product.terms} x {narrow}>"
  ones = f"{terms} {'splat (i32 1)' if instruction.words else 'zeroinitializer'}"
  step = f"call {vector} @{name}({vector} {{}}, {ones}, {ones})"
  return chains_text(vector, step, f"declare {vector} @{name}({vector}, {terms}, {terms})\n", count)


TILES = 4
"""Accumulators of matrix instructions, which have eight registers: what is left are the operands of the products."""


def tiles_text(instruction: TileInstruction) -> str:
  """The same of a matrix instruction, whose registers are not values; nothing needs what they hold."""
  lines, globals = Function(), list[str]()
  begin_tiles(lines, globals)
  for number in range(REGISTERS):
    lines.call("llvm.x86.tilezero", "void", ("i8", str(number)))
  before, lines.lines = lines.lines, []
  for k in range(TILES):
    lines.call(instruction.name, "void", *[("i8", str(number)) for number in (k, TILES, TILES + 1)])
  loop = [f"  %first = mul i64 %begin, {ROUNDS}", f"  %last = mul i64 %end, {ROUNDS}", *before, "  br label %loop"]
  loop += ["loop:", "  %i = phi i64 [%first, %entry], [%next, %loop]", *lines.lines]
  loop += ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %last"]
  loop += ["  br i1 %more, label %loop, label %done", "done:"]
  lines.lines = []
  end_tiles(lines)
  text = "\n".join([*loop, *lines.lines, "  ret void", ""])
  return "\n".join([*globals, _function(text, "\n".join([*lines.declarations.values(), ""]))])


DOTS = {"int8": dtypes.int8, "bf16": dtypes.bfloat16}


def fastest(kind: str) -> DotInstruction | TileInstruction | None:
  """The machine's instruction that does most products of a type of DOTS; None if multiply-adds do as many."""
  target = renderer_for(host_arch()).llvm
  known: list[DotInstruction | TileInstruction] = [*target.dots, *target.tiles]
  listed = [d for d in known if DOTS[kind] in (d.product.dtype_a, d.product.dtype_b)]
  best = max(listed, key=lambda d: d.rate * d.product.terms, default=None)
  return best if best is not None and best.rate * best.product.terms > 1 else None


def stream_text(kind: str, width: int, around_cache: bool) -> str:
  """A stream over the blocks [begin, end), through four parts of a block at once, since one alone leaves the memory
  idle. `around_cache`: stores that do not read what they overwrite first."""
  vector, arrays, hint = f"<{width} x float>", STREAMS[kind], ", !nontemporal !0" if around_cache else ""
  part = BLOCK // PARTS
  lines = [f"  %first = mul i64 %begin, {part}", f"  %last = mul i64 %end, {part}"]
  for array in range(arrays):  # the last is the one that is written; that of sums is the first
    lines += [f"  %slot{array} = getelementptr ptr, ptr %buffers, i64 {array + 1}"]
    lines += [f"  %array{array} = load ptr, ptr %slot{array}"]
  lines += ["  br label %loop", "loop:", "  %i = phi i64 [%first, %entry], [%next, %loop]"]
  lines += [f"  %s{k} = phi {vector} [zeroinitializer, %entry], [%t{k}, %loop]" for k in range(PARTS)]
  lines += [f"  %low = and i64 %i, {part - 1}", "  %high = sub i64 %i, %low"]
  lines += [f"  %block = mul i64 %high, {PARTS}", "  %at = add i64 %block, %low"]
  for k in range(PARTS):
    lines.append(f"  %at{k} = add i64 %at, {k * part}")
    for array in range(arrays):
      lines.append(f"  %p{array}.{k} = getelementptr float, ptr %array{array}, i64 %at{k}")
    lines.append(f"  %x{k} = load {vector}, ptr %p0.{k}, align 64")
    value = f"%x{k}"
    if kind == "triad":
      lines.append(f"  %y{k} = load {vector}, ptr %p1.{k}, align 64")
      lines.append(f"  %h{k} = fmul {vector} %y{k}, splat (float 0.5)")
      lines.append(f"  %z{k} = fadd {vector} %x{k}, %h{k}")
      value = f"%z{k}"
    if kind == "read":
      lines.append(f"  %t{k} = fadd {vector} %s{k}, {value}")
    else:
      lines.append(f"  store {vector} {value}, ptr %p{arrays - 1}.{k}, align 64{hint}")
      lines.append(f"  %t{k} = fadd {vector} %s{k}, zeroinitializer")
  lines += [f"  %next = add i64 %i, {width}", "  %more = icmp slt i64 %next, %last"]
  lines += ["  br i1 %more, label %loop, label %done", "done:"]
  return _function(
    "\n".join(lines) + "\n" + _sum_and_store(vector, [f"%t{k}" for k in range(PARTS)]), "!0 = !{i32 1}\n"
  )


class Roofline:
  """Measures rates of this machine, with as many threads as the device uses."""

  def __init__(self) -> None:
    self.device = CPUDevice()
    self.width = vector_width()
    self.arrays: list[Any] = []
    self.array_bytes = 0
    self.hints: dict[tuple[str, int], bool] = {}
    self.out = self.device.alloc(4096 * self.width * 4)

  @cache  # noqa: B019  # one of these lives as long as its process
  def program(self, text: str, arrays: int) -> Any:
    """The loop, ready to be launched."""
    params = tuple(ParamInfo(slot, dtypes.float32, 1, True, True) for slot in range(arrays + 1))
    much = UOp.const(dtypes.index, 1 << 40)  # of work, as an estimate: use all threads
    code = compile_object(text, host_arch().processor, 2)
    return self.device.load(Binary(code, "roof", (), (), params, (), much, much, text))

  def measure(self, kind: str, nbytes: int, seconds: float, clock: Callable[[], float]) -> float:
    """Operations per second ("fma", "dot int8", "dot bf16") or bytes per second of a stream over so many bytes in all,
    for about so long. Dot products are those of its fastest instruction for them, which may be the multiply-add."""
    if kind not in STREAMS:
      return self.in_registers(kind, seconds, clock)
    arrays = STREAMS[kind]
    blocks = max(1, nbytes // (arrays * BLOCK * 4))
    self.make_arrays(arrays, blocks * BLOCK * 4)
    memories = [self.out, *self.arrays[:arrays]]
    hint = self.around_cache(kind, blocks, memories)
    program = self.program(stream_text(kind, self.width, hint), arrays)
    return float(arrays * blocks * BLOCK * 4) / self.mean(program, memories, blocks, seconds, clock)

  def in_registers(self, kind: str, seconds: float, clock: Callable[[], float]) -> float:
    """Operations per second of chains of an instruction."""
    parts = 256  # some milliseconds, so that waking threads does not count
    chains = registers()
    found = None if kind == "fma" else fastest(kind.removeprefix("dot "))
    if found is None:
      text, operations = fma_text(self.width, chains), 2.0 * self.width
    elif isinstance(found, TileInstruction):
      chains, text = TILES, tiles_text(found)
      operations = 2.0 * found.product.rows * found.product.lanes * found.product.steps
    else:
      text, operations = dot_text(found, chains), 2.0 * found.names[0][0] * found.product.terms
    work = parts * ROUNDS * chains * operations
    return work / self.mean(self.program(text, 0), [self.out], parts, seconds, clock)

  def around_cache(self, kind: str, blocks: int, memories: list[Any]) -> bool:
    """Whether stores around the cache are faster for this stream; found out once."""
    if kind == "read":
      return False
    if (kind, blocks) not in self.hints:
      programs = [self.program(stream_text(kind, self.width, hint), STREAMS[kind]) for hint in (False, True)]
      least = [float("inf")] * 2
      for turn in range(10):  # the best of five each, in turn
        start = perf_counter()
        self.launch(programs[turn % 2], memories, blocks)
        least[turn % 2] = min(least[turn % 2], perf_counter() - start)
      self.hints[kind, blocks] = least[1] < least[0]
    return self.hints[kind, blocks]

  def make_arrays(self, count: int, nbytes: int) -> None:
    """Arrays of a size, all written once; those of another size go."""
    if self.array_bytes != nbytes:
      for block in self.arrays:
        self.device.free(block)
      self.arrays, self.array_bytes = [], nbytes
    while len(self.arrays) < count:
      self.arrays.append(self.device.alloc(nbytes))
      self.device.write(self.arrays[-1], 0, memoryview(bytes(nbytes)))

  def launch(self, program: Any, memories: list[Any], parts: int) -> None:
    self.device.launch(program, [(m, 0) for m in memories], (), (parts,), (1,), True)

  def mean(
    self, program: Any, memories: list[Any], parts: int, seconds: float, clock: Callable[[], float]
  ) -> float:  # fmt: skip
    """Seconds of a launch, once the caches are as it leaves them."""
    self.launch(program, memories, parts)
    start, launches = clock(), 0
    while True:
      self.launch(program, memories, parts)
      launches += 1
      if (spent := clock() - start) >= seconds:
        return spent / launches
