"""The module around the instructions of a program: its functions, how they are called, and what they promise LLVM.

A processor gets one function `void NAME(void** buffers, int64_t* integers, int64_t begin, int64_t end)`, a device a
kernel whose arguments are the buffers and the integers themselves. Either may have its body twice, for aligned buffers
and for others. A processor's function looks at the addresses. A device gets two kernels, NAME for any buffers and
NAME_aligned, and who launches one chooses: a choice on the device costs the registers of both bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tiny_codegen.cost_model import CACHE_LINE
from tiny_codegen.render.llvm.function import ARGUMENTS as CLAIM
from tiny_codegen.render.llvm.function import Function
from tiny_codegen.render.llvm.memory import ALIGNED_ONLY, PAIRED, PLAIN, PLAIN_ONLY, STREAMED, WIDE
from tiny_codegen.render.llvm.target import LLVMTarget
from tiny_codegen.render.llvm.text import pointer
from tiny_uop import AddrSpace, Ops, ProgramInfo, UOp
from tiny_uop.records import dataclass

_WIDE = re.compile(rf"{re.escape(WIDE)}|{re.escape(ALIGNED_ONLY)}")
_ALIGNED = re.compile(rf", align \d+(?:{re.escape(WIDE)}|{re.escape(PAIRED)})(\d+)")
_FENCE = "llvm.x86.sse.sfence"
ALIGNED = "_aligned"
"""What the name of a device's kernel for aligned buffers ends with: all at multiples of `LLVMTarget.aligned` bytes."""


@dataclass(frozen=True)
class Module:
  """A program that has been written as instructions, on its way to the text of a module.

  `globals` are its shared arrays, `sizes` the threads of a workgroup where they are known, `shares` whether several
  workers share its outermost loop. `exchanged` are the slots of buffers through which threads exchange values.
  """

  llvm: LLVMTarget
  info: ProgramInfo
  body: Function
  globals: Sequence[str]
  sizes: tuple[int, int, int] | None
  shares: bool
  exchanged: frozenset[int] = frozenset()

  def text(self) -> str:
    """All of it."""
    lines = [f"; program {self.info.name} for {self.llvm.name}"]
    if self.llvm.datalayout:
      lines.append(f'target datalayout = "{self.llvm.datalayout}"')
    if self.llvm.triple:
      lines.append(f'target triple = "{self.llvm.triple}"')
    functions = self._device() if self.llvm.convention else self._host()
    lines += ["", *self.globals, *functions, *self.body.declarations.values(), "", self._attributes()]
    return "\n".join([*lines, *(["", *self.llvm.metadata] if self.llvm.metadata else []), ""])

  # *** functions ***

  def arguments(self) -> list[str]:
    """Of the body: (type and what LLVM may assume, name) of the buffers and integers."""
    kind, device = pointer(AddrSpace.GLOBAL, self.llvm.spaces), bool(self.llvm.convention)
    found = []
    for place, p in enumerate(self.info.params):
      promises = "noalias" if p.written or not device else "noalias readonly"
      # of a noalias argument, LLVM takes it that nobody else writes: a value from before a barrier would do behind it
      found.append(f"{kind} %p{place}" if p.slot in self.exchanged else f"{kind} {promises} %p{place}")
    return [*found, *[f"i64 %n{place}" for place in range(len(self.info.variables))]]

  def _function(self, head: str, arguments: Iterable[str], lines: Iterable[str]) -> list[str]:
    name, tail = head.rsplit(" ", 1)
    return [f"define {name}({', '.join(arguments)}) {tail} {{", "start:", *lines, "}", ""]

  def _body(self, head: str, arguments: Iterable[str], lines: Iterable[str]) -> list[str]:
    return self._function(head, arguments, [*self.body.entry, *lines, "  ret void"])

  def _device(self) -> list[str]:
    name, arguments, lines = self.info.name, self.arguments(), self.body.lines
    head = f"{self.llvm.convention} void @{name}"
    if not any(_WIDE.search(line) for line in lines):
      return self._body(f"{head} #0", arguments, lines)
    plain = [line for line in lines if ALIGNED_ONLY not in line]
    wide = [_ALIGNED.sub(r", align \1", line) for line in lines if PLAIN_ONLY not in line]
    return [*self._body(f"{head} #0", arguments, plain), *self._body(f"{head}{ALIGNED} #0", arguments, wide)]

  def _host(self) -> list[str]:
    name, lines = self.info.name, self.body.lines
    arguments = [*self.arguments(), *self._part()]
    streamed = [line.replace(PLAIN, STREAMED) for line in lines]
    bodies = self._body(f"internal void @{name}.body #1", arguments, lines)
    entry, passed = self._unpacked()
    if streamed != lines:
      bodies += [*self._body(f"internal void @{name}.body.aligned #1", arguments, streamed), "!0 = !{i32 1}", ""]
      self.body.declarations[_FENCE] = f"declare void @{_FENCE}()"
      calls = self._choice(passed, CACHE_LINE, f"  call void @{_FENCE}()")
    else:
      calls = [self._call("", passed)]
    if self.shares:
      entry += [*calls, "  ret void"]
    else:  # nothing to share: whoever gets the first piece does it all
      entry += ["  %first = icmp eq i64 %begin, 0", "  br i1 %first, label %run, label %done", "run:"]
      entry += [*calls, "  br label %done", "done:", "  ret void"]
    outside = ["ptr %buffers", "ptr %integers", *self._part()]
    return [*bodies, *self._function(f"void @{name} #0", outside, entry)]

  def _unpacked(self) -> tuple[list[str], list[str]]:
    """(instructions that load what the body is passed, that)."""
    lines, passed = [], []
    for place, p in enumerate(self.info.params):
      lines += [f"  %a{place} = getelementptr ptr, ptr %buffers, i64 {place}", f"  %p{place} = load ptr, ptr %a{place}"]
      passed.append(f"ptr %p{place}")
      assert p.slot >= 0
    for place in range(len(self.info.variables)):
      lines += [
        f"  %b{place} = getelementptr i64, ptr %integers, i64 {place}",
        f"  %n{place} = load i64, ptr %b{place}",
      ]
      passed.append(f"i64 %n{place}")
    return lines, [*passed, *self._part()]

  def _part(self) -> list[str]:
    """Arguments that say what of the loop that workers share is to be done."""
    return ["i64 %begin", "i64 %end", *(CLAIM if self.llvm.dynamic_scheduling else ())]

  def _call(self, which: str, passed: Iterable[str]) -> str:
    return f"  call void @{self.info.name}.body{which}({', '.join(passed)})"

  def _choice(self, passed: list[str], align: int, *after: str) -> list[str]:
    """Call the body for aligned buffers, and something after it, if all of them are; else the other one."""
    lines, joined = [], "0"
    for place, p in enumerate(passed[: len(self.info.params)]):
      lines += [f"  %q{place} = ptrtoint {p} to i64", f"  %j{place} = or i64 {joined}, %q{place}"]
      joined = f"%j{place}"
    return [
      *lines,
      f"  %low = and i64 {joined}, {align - 1}",
      "  %are_aligned = icmp eq i64 %low, 0",
      "  br i1 %are_aligned, label %aligned, label %plain",
      "aligned:",
      self._call(".aligned", passed),
      *after,
      "  ret void",
      "plain:",
      self._call("", passed),
    ]

  def _attributes(self) -> str:
    shared = ["nounwind"]
    if self.llvm.cpu:
      shared.append(f'"target-cpu"="{self.llvm.cpu}"')
    if self.llvm.features:
      shared.append(f'"target-features"="{self.llvm.features}"')
    if (bits := self.llvm.target.vector_bits) and not self.llvm.convention:
      # LLVM would otherwise halve 512-bit vectors on some processors
      shared.append(f'"prefer-vector-width"="{bits}"')
    text = " ".join([*shared, *self.llvm.attributes])
    entry = text
    if self.sizes is not None and self.llvm.group_size:
      x, y, z = self.sizes
      entry += " " + self.llvm.group_size.format(x=x, y=y, z=z, threads=x * y * z)
    return f"attributes #0 = {{ {entry} }}\nattributes #1 = {{ alwaysinline {text} }}"


def workgroup(linear: UOp) -> tuple[int, int, int] | None:
  """The threads of a workgroup along each axis; None where a size is not known before the launch."""
  sizes = [1, 1, 1]
  for u in linear.src:
    if u.op is Ops.SPECIAL and u.arg.startswith("lidx"):
      if u.src[0].op is not Ops.CONST:
        return None
      sizes[int(u.arg[4:])] = int(u.src[0].arg)
  return sizes[0], sizes[1], sizes[2]
