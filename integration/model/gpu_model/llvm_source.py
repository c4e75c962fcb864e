"""LLVM IR for a GPU as LLVM IR for this machine: the kernel's own instructions, with calls into the model where a GPU
has counters, barriers, matrices and memory.
"""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from gpu_model.exchanges import exchange
from gpu_model.machine import library
from gpu_model.toolchain import Refused, linked, new_object
from tiny_codegen import LLVMTarget, TensorCore
from tiny_codegen.render.llvm.matrix import MatrixInstruction
from tiny_runtime.llvm import LLVMError, Processor, compile_object
from tiny_uop import DType, dtypes

KERNELS = re.compile(r"^define (?:ptx_kernel|amdgpu_kernel) void @(\S+)\((.*)\) #0 \{$", re.MULTILINE)
SHARED = re.compile(r"^@(\S+) = internal global \[(\d+) x (.+)\] poison", re.MULTILINE)
LOAD = re.compile(r"  \S+ = load (.+?), ptr (\S+), align")
STORE = re.compile(r"  store (<\d+ x \w+>|\w+) .*, ptr (\S+), align")
UPDATE = re.compile(r"  (?:\S+ = )?atomicrmw \w+ ptr (\S+), (\w+) ")
COUNTER = re.compile(r"call (?:range\(.*?\) )?i32 @(\S+)\(\)")
HELD = re.compile(r'call (<[^<>]*>) asm "", "=\w,0"\(\1 (%[\w.]+)\) convergent memory\(none\)')
"""A value that is kept where it is made."""
MATRIX = re.compile(r"  (\S+) = call (.+?) @(llvm\.\S+?)\((.*)\)$")
VECTOR = re.compile(r"<(\d+) x (\w+)>")
BARRIER = re.compile(r"  call void @llvm\.(amdgcn\.s\.barrier|nvvm\.barrier\.[\w.]+)\(")
FENCE = re.compile(r'  fence (?:syncscope\("([\w-]+)"\) )?(\w+)(?:, !mmra (!\d+))?$')
NODE = re.compile(r"^(!\d+) = !\{(.*)\}$", re.MULTILINE)
SYNCHRONIZED = re.compile(r'!"amdgpu-synchronize-as", !"(\w+)"')
ORDERED = {"global": 1, "local": 2}
"""Bits of what a barrier orders, as in machine.h."""
ALL_ORDERED = 3
SCOPES = (None, "agent", "workgroup")
"""Of fences: at least the threads of a workgroup. Of none, it is the system."""
RELEASES, ACQUIRES = ("release", "acq_rel", "seq_cst"), ("acquire", "acq_rel", "seq_cst")
# of the target, which is another one here: the registers of a GPU, and fences, which barriers have looked at
DROPPED = re.compile(r"^(target |declare .*@llvm\.(nvvm|amdgcn)\.|  fence |attributes )")
OPERANDS = ("a", "b", "c")
BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}
# in the order of machine.cpp
NUMBERS = (
  dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.uint8, dtypes.int32
)  # fmt: skip
DECLARED = """
declare i32 @machine_position(i32)
declare void @machine_barrier(i32, i32)
declare void @machine_shared(ptr, ptr, i64)
declare void @machine_update(ptr, i64)
declare i32 @machine_lane()
declare i32 @machine_take(i32, i32, i32)
declare void @machine_matrix(i32, ptr, ptr, ptr)
declare void @__tsan_read_range(ptr, i64)
declare void @__tsan_write_range(ptr, i64)
attributes #0 = { nounwind }
attributes #1 = { alwaysinline nounwind }
"""


def bits_of(kind: str) -> int:
  """Of a type, as it is in memory."""
  if found := VECTOR.fullmatch(kind):
    return int(found[1]) * bits_of(found[2])
  return BITS[kind] if kind in BITS else max(8, int(kind.removeprefix("i")))


def table(core: TensorCore) -> list[int]:
  """A matrix instruction for `machine_matrix`."""
  numbers = [*core.dims, core.threads, NUMBERS.index(core.dtype_in), NUMBERS.index(core.dtype_out), *core.elements]
  for fragment in (core.a, core.b, core.c):
    for thread, element in itertools.product(range(core.threads), range(fragment.count)):
      numbers += [int(n) for n in fragment.place(thread, element)]
  return numbers


def interleaved(instruction: MatrixInstruction) -> list[str]:
  """What each argument of the intrinsic is: `a`, `b` or `c`, once for each piece of it, or a constant."""
  core = instruction.core
  types: tuple[DType, ...] = (core.dtype_in, core.dtype_in, core.dtype_out)
  pieces = zip(OPERANDS, core.elements, types, instruction.pieces)
  counts = {name: count * dtype.bits // bits for name, count, dtype, (_, bits) in pieces}
  return [word for argument in instruction.arguments for word in [argument] * counts.get(argument, 1)]


def _constants_agree(instruction: MatrixInstruction, arguments: list[str]) -> bool:
  words = interleaved(instruction)
  return len(words) == len(arguments) and all(w in OPERANDS or w == given for w, given in zip(words, arguments))


class LLVMSource:
  """A kernel's LLVM IR, to be called by the machine. Raises Refused for what is none."""

  def __init__(self, source: str, target: LLVMTarget) -> None:
    self.source, self.target = re.sub(r",? addrspace\(\d+\)", "", source), target
    found = KERNELS.search(self.source)
    if found is None:
      raise Refused("no function is a kernel of a GPU")
    parameters = [text.split() for text in found[2].split(", ") if text]
    self.name, self.parameters = found[1], [words[0] for words in parameters]
    self.unaliased = ["noalias" in words for words in parameters]
    """Whether LLVM may take it that no other thread touches what one writes through the parameter."""
    self.counters = {intrinsic: n for n, (_, intrinsic) in enumerate(target.counters)}
    self.lines = self.source.splitlines()
    self.nodes = dict(NODE.findall(self.source))
    """Of metadata: what is in them, by name."""
    self.matrices = {instruction.name for instruction in target.matrices}
    self.used: set[int] = set()
    """Of the target's matrix instructions, by number."""

  @property
  def as_host(self) -> str:
    """The IR for a host compiler, with a function that calls the kernel."""
    lines: list[str] = []
    for number, line in enumerate(self.lines):
      if not DROPPED.match(line):
        lines += self._line(number, line)
    return "\n".join([*lines, *self._tables(), self._call(), DECLARED])

  def _line(self, number: int, line: str) -> Iterator[str]:
    line = HELD.sub(r"freeze \1 \2", line)
    if found := LOAD.match(line):
      yield f"  call void @__tsan_read_range(ptr {found[2]}, i64 {bits_of(found[1]) // 8})"
    elif found := STORE.match(line):
      yield f"  call void @__tsan_write_range(ptr {found[2]}, i64 {bits_of(found[1]) // 8})"
    elif found := UPDATE.match(line):
      yield f"  call void @machine_update(ptr {found[1]}, i64 {bits_of(found[2]) // 8})"
      line = re.sub(r' syncscope\("\w+"\)', "", line)
    elif (found := COUNTER.search(line)) and found[1] in self.counters:
      line = COUNTER.sub(f"call i32 @machine_position(i32 {self.counters[found[1]]})", line)
    elif found := BARRIER.match(line):
      line = f"  call void @machine_barrier(i32 {number}, i32 {self._ordered(found[1], number)})"
    elif (found := MATRIX.match(line)) and found[3] in self.matrices:
      yield from self._matrix(number, *found.groups())
      return
    elif (instead := exchange(number, line)) is not None:
      yield from instead
      return
    yield re.sub(r"^define (ptx_kernel|amdgpu_kernel) ", "define ", line)
    if line.startswith("define "):
      self.inside = line
    elif line == "start:" and " internal " not in self.inside:
      yield from self._arrays()
    if line == "start:":
      yield "  %given = alloca [1024 x i8], align 16"
      yield "  %made = alloca [1024 x i8], align 16"

  def _ordered(self, name: str, line: int) -> int:
    """The memory that a barrier orders. NVIDIA's order all of it; of AMD's, which only wait, it is what both a fence
    that releases, right before it, and one that acquires, right behind it, are for (AMDGPUUsage, "Memory Model")."""
    if name.startswith("nvvm"):
      return ALL_ORDERED
    return self._fenced(self.lines[:line][::-1], RELEASES) & self._fenced(self.lines[line + 1 :], ACQUIRES)

  def _fenced(self, lines: list[str], orderings: tuple[str, ...]) -> int:
    """What the fences at the beginning of these lines are for: where `!mmra` names kinds of memory, these."""
    ordered = 0
    for fence in itertools.takewhile(bool, map(FENCE.match, lines)):
      assert fence is not None
      scope, ordering, node = fence.groups()
      if ordering in orderings and scope in SCOPES:
        names = self._synchronized(node) if node else []
        ordered |= sum({ORDERED[name] for name in names}) if names else ALL_ORDERED
    return ordered

  def _synchronized(self, node: str) -> list[str]:
    """The kinds of memory in a node of metadata: one of them, or a list of such nodes."""
    text = self.nodes[node]
    return SYNCHRONIZED.findall(text) or [n for other in re.findall(r"!\d+", text) for n in self._synchronized(other)]

  def _arrays(self) -> Iterator[str]:
    for name, count, kind in SHARED.findall(self.source):
      yield f"  call void @machine_shared(ptr @{name}.name, ptr @{name}, i64 {int(count) * bits_of(kind) // 8})"

  def _matrix(self, line: int, result: str, kind: str, name: str, passed: str) -> Iterator[str]:
    """The elements go through memory: a, b and c one after the other, as the machine wants them."""
    arguments = re.findall(r"((?:<\d+ x \w+>|\w+) (?:<[^<>]*>|[^\s,]+))(?:, |$)", passed)
    # signed and unsigned are one intrinsic, told apart by arguments that are constants
    meant = [n for n, m in enumerate(self.target.matrices) if m.name == name and _constants_agree(m, arguments)]
    if len(meant) != 1:
      raise Refused(f"{len(meant)} of the target's matrix instructions are @{name}({passed})")
    offset = 0
    for place, (word, argument) in enumerate(zip(interleaved(self.target.matrices[meant[0]]), arguments, strict=True)):
      if word in OPERANDS:
        yield f"  %given{line}_{place} = getelementptr i8, ptr %given, i32 {offset}"
        yield f"  store {argument}, ptr %given{line}_{place}, align 1"
        offset += bits_of(argument[: argument.index(">") + 1] if argument[0] == "<" else argument.split()[0]) // 8
    self.used.add(meant[0])
    yield f"  call void @machine_matrix(i32 {line}, ptr @matrix{meant[0]}, ptr %given, ptr %made)"
    yield f"  {result} = load {kind}, ptr %made, align 1"

  def _tables(self) -> Iterator[str]:
    for name, _, _ in SHARED.findall(self.source):
      text = f"{name.split('.')[-1]}\\00"
      yield f'@{name}.name = internal constant [{len(text) - 2} x i8] c"{text}"'
    for number in sorted(self.used):
      numbers = table(self.target.matrices[number].core)
      values = ", ".join(f"i32 {n}" for n in numbers)
      yield f"@matrix{number} = internal constant [{len(numbers)} x i32] [{values}]"

  def _call(self) -> str:
    lines, passed = [], []
    for place, kind in enumerate(self.parameters):
      lines += [
        f"  %a{place} = getelementptr ptr, ptr %arguments, i64 {place}",
        f"  %b{place} = load ptr, ptr %a{place}",
      ]
      if kind != "ptr":
        lines.append(f"  %c{place} = load {kind}, ptr %b{place}")
      passed.append(f"{kind} %{'b' if kind == 'ptr' else 'c'}{place}")
    head = "define void @model_call(ptr %arguments, ptr %group, ptr %thread) #0 {\nstart:"
    return "\n".join([head, *lines, f"  call void @{self.name}({', '.join(passed)})", "  ret void", "}"])

  @cached_property
  def call(self) -> Any:
    """The function that the machine calls for each thread."""
    library()
    try:
      code = compile_object(self.as_host, host())
    except LLVMError as error:
      raise Refused(f"{error}\n{self.as_host}") from None
    path = new_object()
    path.write_bytes(code)
    return ctypes.CDLL(str(linked(path))).model_call


# conversions to narrow floats that take small numbers as 0
UNWANTED = ("avx512bf16", "avx512fp16", "avxneconvert")


def host() -> Processor:
  """This machine."""
  import llvmlite.binding as llvm

  features = {**llvm.get_host_cpu_features(), **dict.fromkeys(UNWANTED, False)}
  listed = ",".join(f"+{name}" for name, there in sorted(features.items()) if there)
  return Processor(llvm.get_process_triple(), "", listed)
