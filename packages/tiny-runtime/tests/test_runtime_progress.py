"""The line that a terminal shows while kernels are compiled; here the terminal is a pseudo-terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
termios = pytest.importorskip("termios")

PROGRAM = textwrap.dedent("""
  import time
  from tiny_runtime import compile_cache, run
  from tiny_uop import KernelInfo, Ops, UOp, dtypes

  compile_now = compile_cache.compile_now

  def slowly(*arguments):
    time.sleep({seconds})
    return compile_now(*arguments)

  compile_cache.compile_now = slowly
  calls = []
  for n in range({count}):
    i = UOp.range(4, 0)
    store = UOp.param(0, dtypes.float32.ptr(4)).index(i).store(UOp.const(dtypes.float32, n)).end(i)
    kernel = UOp.sink(store, arg=KernelInfo(f"fill{{n}}"))
    calls += [UOp(Ops.CALL, dtypes.void, (kernel, UOp.new_buffer("REF", 4, dtypes.float32))) for _ in range(2)]
  run(UOp(Ops.LINEAR, dtypes.void, tuple(calls)))
  print("all done")
""")
LINE = re.compile(r"compiling (\d+)/(\d+) kernels · (\w+) \|")


def in_terminal(folder: Path, count: int, seconds: float, interrupt: str = "", **settings: str) -> tuple[int, str]:
  """Exit status, and all that is written to the terminal; `interrupt`: Ctrl-C is typed once this is there."""
  environment = os.environ | {"XDG_CACHE_HOME": str(folder), "COMPILE_PROCESSES": "1"} | settings
  pid, terminal = pty.fork()
  if pid == 0:
    program = PROGRAM.format(count=count, seconds=seconds)
    os.execve(sys.executable, [sys.executable, "-c", program], environment)
  termios.tcsetwinsize(terminal, (24, 100))
  written, typed, end = b"", False, time.monotonic() + 60
  while time.monotonic() < end:
    try:
      written += os.read(terminal, 4096)
    except OSError:  # the other end is closed
      break
    if interrupt and not typed and interrupt.encode() in written:
      os.write(terminal, b"\x03")
      typed = True
  status = os.waitpid(pid, 0)[1]
  os.close(terminal)
  return status, written.decode()


def shown(written: str) -> str:
  """What is left to see of lines that were drawn over."""
  lines = []
  for line in written.replace("\r\n", "\n").split("\n"):
    left = ""
    for part in line.split("\r"):
      left = part + left[len(part) :]
    lines.append(left.replace("\x1b[A", "").rstrip())
  return "\n".join(lines).strip()


def test_a_line_counts_kernels_and_is_gone_in_the_end(tmp_path: Path) -> None:
  status, written = in_terminal(tmp_path, count=8, seconds=0.3)
  assert status == 0
  drawn = [(int(done), int(total), name) for done, total, name in LINE.findall(written)]
  assert drawn and all(total == 8 and name == f"fill{done}" for done, total, name in drawn), written
  assert drawn[-1][0] == 7 and drawn[0][0] >= 1, "the second call of a kernel is no other one; nothing at first"
  assert shown(written) == "all done"


def test_one_kernel_that_takes_long_is_seen(tmp_path: Path) -> None:
  status, written = in_terminal(tmp_path, count=1, seconds=2.0)
  assert status == 0 and ("0", "1", "fill0") in LINE.findall(written)
  assert shown(written) == "all done"


def test_what_is_quick_or_not_wanted_shows_nothing(tmp_path: Path) -> None:
  assert in_terminal(tmp_path / "a", count=4, seconds=0.0)[1] == "all done\r\n"
  assert in_terminal(tmp_path / "b", count=4, seconds=0.4, PROGRESS="0")[1] == "all done\r\n"


def test_no_terminal_no_line(tmp_path: Path) -> None:
  environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "COMPILE_PROCESSES": "1"}
  program = PROGRAM.format(count=4, seconds=0.4)
  done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
  assert (done.returncode, done.stdout, done.stderr) == (0, "all done\n", "")


def test_an_interrupt_takes_the_line_away_first(tmp_path: Path) -> None:
  status, written = in_terminal(tmp_path, count=40, seconds=0.3, interrupt="compiling")
  assert status != 0 and "all done" not in written
  assert "KeyboardInterrupt" in shown(written)
  assert "compiling" not in shown(written), "the traceback stands alone"
