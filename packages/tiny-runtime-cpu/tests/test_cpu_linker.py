"""Our own linker: what it links runs as with LLVM's, and what it does not know it leaves alone."""

from __future__ import annotations

import ctypes
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_runtime import system
from tiny_runtime.llvm import LLVMError, Processor, compile_object
from tiny_runtime_cpu import host_arch, linker
from tiny_runtime_cpu.jit_linker import JitLinked
from tiny_runtime_cpu.linker import Linked, NotForUs, links_here
from tiny_runtime_cpu.machine import LoadedObject
from tiny_runtime_cpu.pool import pool_source

pytestmark = pytest.mark.skipif(not links_here(), reason="it is for Linux on x86-64")

# constants, a table of code addresses, what is written, what is zero, calls within and out of the object, and
# addresses of functions in and out of it
EVERYTHING = """
@table = internal constant [4 x double] [double 0.5, double 1.5, double 2.5, double 3.5], align 32
@count = internal global i64 40
@zero = internal global [1000 x i64] zeroinitializer, align 64
@functions = internal global [2 x ptr] [ptr @helper, ptr @other]
declare i64 @llabs(i64)
declare ptr @memset(ptr, i32, i64)
define internal i64 @helper(i64 %x) noinline { %y = add i64 %x, 1
  ret i64 %y }
define i64 @other(i64 %x) noinline { %y = call i64 @llabs(i64 %x)
  ret i64 %y }
define i64 @f(i64 %n, ptr %where) {
  %at = getelementptr [4 x double], ptr @table, i64 0, i64 %n
  %value = load double, ptr %at
  %twice = fmul double %value, 2.0
  %whole = fptosi double %twice to i64
  %old = load i64, ptr @count
  %new = add i64 %old, %whole
  store i64 %new, ptr @count
  %slot = getelementptr [2 x ptr], ptr @functions, i64 0, i64 1
  %function = load ptr, ptr %slot
  %minus = sub i64 0, %new
  %called = call i64 %function(i64 %minus)
  %helped = call i64 @helper(i64 %called)
  %z = getelementptr [1000 x i64], ptr @zero, i64 0, i64 %n
  %nothing = load i64, ptr %z
  store ptr @memset, ptr %where
  %filled = call ptr @memset(ptr @zero, i32 0, i64 8000)
  %result = add i64 %helped, %nothing
  ret i64 %result
}
"""


def built(text: str, level: int = 2) -> bytes:
  return compile_object(text, host_arch().processor, level)


@pytest.mark.parametrize("level", (0, 2))
def test_what_is_linked_runs_as_with_llvm(level: int) -> None:
  code = built(EVERYTHING, level)
  ours, llvm = Linked(code), JitLinked(code, "f", "other")
  answers = []
  for linked in (ours, llvm):
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(linked.address("f"))
    where = ctypes.c_void_p()
    answers.append([function(n, ctypes.addressof(where)) for n in (0, 1, 2, 3)])
    # the address that the process itself has for it: by that, two pieces of code agree on a function
    assert where.value == ctypes.cast(ctypes.CDLL(None).memset, ctypes.c_void_p).value
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(linked.address("other"))(-7) == 7
  assert answers[0] == answers[1] == [42, 45, 50, 57]


def test_code_cannot_be_written_and_data_cannot_be_run() -> None:
  linked = Linked(built(EVERYTHING))
  with open("/proc/self/maps") as file:
    maps = [line.split()[:2] for line in file]

  def rights(address: int) -> str:
    spans = [(span.split("-"), found) for span, found in maps]
    return next(found for (low, high), found in spans if int(low, 16) <= address < int(high, 16))

  assert rights(linked.address("f")) == "r-xp"
  assert rights(linked.address("count")) == "rw-p"


def test_the_thread_pool_is_linked_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setitem(sys.modules, "tiny_runtime_cpu.jit_linker", None)  # importing it fails
  loaded = LoadedObject(built(pool_source(host_arch()), 0), "pool_run", "graph_run")
  assert loaded.address("pool_run") != loaded.address("graph_run")


@pytest.mark.parametrize("text", (
  "@t = thread_local global i64 5\ndefine i64 @f() {\n %x = load i64, ptr @t\n ret i64 %x\n}",
  "declare extern_weak i64 @nowhere()\ndefine i64 @f() {\n %x = call i64 @nowhere()\n ret i64 %x\n}",
  "@t = internal constant [8 x i8] zeroinitializer, align 8192\ndefine ptr @f() {\n ret ptr @t\n}",
))  # fmt: skip
def test_what_it_does_not_know_it_leaves_to_llvm(text: str) -> None:
  with pytest.raises(NotForUs):
    Linked(built(text))


def test_files_of_other_machines_are_not_for_it() -> None:
  text = "define i64 @f() {\n ret i64 1\n}"
  for code in (b"", b"junk", compile_object(text, Processor("aarch64-unknown-linux-gnu"))):
    with pytest.raises(NotForUs):
      Linked(code)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=4), st.integers(0, 1 << 14))
def test_damage_is_found_or_does_no_harm(changes: list[tuple[int, int]], length: int) -> None:
  """Nothing is run here: linking itself must not crash, whatever the file says."""
  code = bytearray(CODE)
  for place, value in changes:
    code[place % len(code)] = value
  try:
    linked = Linked(bytes(code[: length if length < len(code) else None]))
    linked.address("f")
  except (NotForUs, LLVMError):
    pass


CODE = built(EVERYTHING) if links_here() else b""


def test_a_system_that_forbids_it_is_told_by_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
  def refuse(view: memoryview, nbytes: int) -> None:
    raise PermissionError(13, "mprotect: Permission denied")

  linker.check_execution()
  monkeypatch.setattr(system, "make_executable", refuse)
  with pytest.raises(OSError, match="mprotect"):
    linker.check_execution()
