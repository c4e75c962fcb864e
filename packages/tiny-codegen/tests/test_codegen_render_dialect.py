"""C for another language: what a dialect says, and what a subclass of the renderer overrides."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tiny_codegen import C99, CDialect, CRenderer, Limits, Place, compile_kernel, function_name
from tiny_uop import KernelInfo, Ops, Opt, OptOps, ParamInfo, ProgramInfo, UOp, dtypes

GROUPS: CDialect = replace(
  C99.with_target(has_threads=False, has_local=True, limits=Limits(max_local=(8, 8, 8), max_workgroup=64)),
  name="groups",
  host=False,
  kernel="kernel void",
  counters=(("gidx0", "group()"), ("lidx0", "thread()")),
  long_suffix="L",
  bitcast="as_{new}({value})",
)


class Offsets(CRenderer):
  """Buffers begin at an offset, and functions say that they are of a kind."""

  def declaration(self, linear: UOp) -> str:
    return f"[[of_{len([u for u in linear.src if u.op is Ops.SPECIAL])}]] {super().declaration(linear)}"

  def buffer(self, pointer: str, name: str, place: int) -> tuple[list[str], list[str]]:
    return [f"char* {name}_memory", f"long {name}_offset"], [f"{pointer} {name} = {name}_memory + {name}_offset;"]


def source(renderer: CRenderer, kernel: UOp, *opts: Opt) -> str:
  return str(compile_kernel(kernel, renderer, list(opts)).src[2].arg)


def copy(size: int) -> UOp:
  i, floats = UOp.range(size, 0), dtypes.float32.ptr(size)
  store = UOp.param(0, floats).index(i).store(UOp.param(1, floats).index(i).load()).end(i)
  return UOp.sink(store, arg=KernelInfo("copy"))


def test_buffers_and_declarations_can_be_overridden() -> None:
  text = source(Offsets(GROUPS), copy(4))
  assert "[[of_1]] kernel void tiny_copy(char* p0_memory, long p0_offset, char* p1_memory, long p1_offset) {" in text
  assert "\n  const float* restrict p1 = p1_memory + p1_offset;\n" in text


def test_a_gate_is_asked_once() -> None:
  text = source(CRenderer(GROUPS), copy(13), Opt(OptOps.PADTO, 0, 8), Opt(OptOps.LOCAL, 0, 8))
  assert text.count("if (") == 1


def test_literals_and_bitcasts_of_a_dialect() -> None:
  longs, floats = (UOp.param(1, d.ptr(1)).index(0).load() for d in (dtypes.int64, dtypes.float32))
  value = (longs + (1 << 40)) ^ floats.bitcast(dtypes.int32).cast(dtypes.int64)
  sink = UOp.sink(UOp.param(0, dtypes.int64.ptr(1)).index(0).store(value), arg=KernelInfo("mix"))
  kernel = sink.substitute({u: u.replace(arg=2) for u in sink.toposort if u is UOp.param(1, dtypes.float32.ptr(1))})
  text = source(CRenderer(GROUPS), kernel)
  assert f"{1 << 40}L" in text and "LL" not in text and "as_int32_t(" in text


@pytest.mark.parametrize("name", ["double", "main", "a-b c", "r_4"])
def test_names_that_mean_something_else(name: str, tmp_path: Path) -> None:
  """A kernel may have any name: the function's is one that C has no other meaning for."""
  kernel = copy(4)
  text = source(CRenderer(), kernel.replace(arg=KernelInfo(name)))
  assert f"void {function_name(name)}(void** buffers" in text
  if (compiler := shutil.which("cc")) is None:
    pytest.skip("no C compiler")
  subprocess.run([compiler, "-fsyntax-only", "-xc", "-"], input=text, text=True, check=True)


class Wide(CRenderer):
  """Loads with a statement of their own."""

  def load(self, place: Place, name: str) -> tuple[list[str], list[str]]:
    if place.lanes == 1:
      return super().load(place, name)
    return [f"wide {name} = read({place.pointer} + {place.offset});"], [f"{name}[{n}]" for n in range(place.lanes)]


def test_loads_with_statements_stay_behind_their_gate() -> None:
  """Nothing is read where the gate is closed: the statement is in a branch, not before a choice."""
  i, floats = UOp.range(16, 0, dtype=dtypes.int32), dtypes.float32.ptr(64)
  place = UOp.param(1, floats).index(i * 4, i < 9)
  value = place.load(UOp.const(dtypes.float32.vec(4), 7.0), dtype=dtypes.float32.vec(4))
  end = UOp.param(0, floats).index(i * 4).store(value).end(i)
  linear = UOp(Ops.LINEAR, src=UOp.group(end).toposort, arg=KernelInfo("gated"))
  params = tuple(ParamInfo(n, dtypes.float32, 64, n == 0, n == 1) for n in range(2))
  text = Wide(GROUPS).render(linear, ProgramInfo("gated", "groups", params, ()))
  branch = re.search(
    r"float (v\d+) = (\S+), .*;\n +if \((\w+)\) {\n +wide (\w+) = read\(p1 \+ \w+\);\n +(\w+) = (\w+)\[0\];", text
  )
  assert (
    branch is not None and branch[1] == branch[5] and branch[4] == branch[6] and branch[2] == "0x1.c000000000000p+2f"
  )
