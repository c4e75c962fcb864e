"""Plugins that crash, hang, end the program, take the name of another one, or write to the terminal."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tiny_runtime import Broken, Device
from tiny_runtime.errors import printable
from tiny_runtime.opened import OpenDevice
from tiny_runtime.plugins import discovery
from tiny_runtime.ref import BACKEND as REF
from tiny_uop import Context

MakePlugin = Callable[..., Path]

SOURCE = """
import os, signal, sys, time
from tiny_runtime import Unavailable
from tiny_runtime.ref import BACKEND as REF
{first}
class BACKEND:
  api = (1, 0)
  ir = (1, 1)
  def probe(self): {probe}
  def open(self, index): {open}
  def compiler(self, arch): return REF.compiler("python")
"""


def source(first: str = "", probe: str = "return ['python']", open: str = "return REF.open(0)") -> str:
  return SOURCE.format(first=first, probe=probe, open=open)


def use(name: str, **settings: str) -> subprocess.CompletedProcess[str]:
  """A program that opens a device."""
  code = f"from tiny_runtime import Device; print(Device[{name!r}].info.arch)"
  environment = {**os.environ, **settings}
  return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)


@pytest.mark.parametrize(
  ("text", "how"),
  [
    (source(first="os.abort()"), "SIGABRT"),
    (source(probe="os.kill(os.getpid(), signal.SIGSEGV)"), "SIGSEGV"),
    (source(open="os.abort()"), "SIGABRT"),
    (source(open="os._exit(5)"), "status 5"),
  ],
)
def test_a_crash_is_an_error_and_not_the_end(make_plugin: MakePlugin, text: str, how: str) -> None:
  make_plugin("tiny-runtime-bad", "BAD", text)
  found = use("BAD")
  assert found.returncode == 1 and "Broken" in found.stderr and "tiny-runtime-bad 1.2.3" in found.stderr
  assert how in found.stderr


def test_who_hangs_is_named_and_given_up(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-slow", "SLOW", source(open="time.sleep(100)"))
  found = use("SLOW", TRIAL_SECONDS="4")
  assert "waiting up to 4 seconds for tiny-runtime-slow 1.2.3 (SLOW)" in found.stderr
  assert found.returncode == 1 and "did not finish in time" in found.stderr


def test_a_version_is_tried_once(make_plugin: MakePlugin, tmp_path: Path) -> None:
  log = tmp_path / "log"

  def starts(**settings: str) -> int:
    log.write_text("")
    found = use("GOOD", **settings)
    assert found.stdout == "python\n", found.stderr
    return len(log.read_text())

  text = source(first=f"open({str(log)!r}, 'a').write('x')")
  make_plugin("tiny-runtime-good", "GOOD", text)
  assert [starts() for _ in range(3)] == [2, 1, 1]
  (tmp_path / "site" / "tiny_runtime_good-1.2.3.dist-info").rename(tmp_path / "away")
  make_plugin("tiny-runtime-good", "GOOD", text, version="1.2.4")
  assert [starts() for _ in range(2)] == [2, 1]
  assert [starts(TRIAL_SECONDS="0", TINY_CACHE=str(tmp_path / "other")) for _ in range(2)] == [1, 1]


def test_an_error_in_a_trial_is_raised_by_the_plugin_itself(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", source(open="raise ValueError('the cable is loose')"))
  for _ in range(2):
    with pytest.raises(Broken, match="opening BAD: tiny-runtime-bad 1.2.3 raised ValueError: the cable is loose"):
      Device["BAD"]


# *** SystemExit ***


def test_opening_does_not_end_the_program(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", source(open="sys.exit(0)"))
  with pytest.raises(Broken, match="opening BAD: tiny-runtime-bad 1.2.3 raised SystemExit: 0"):
    Device["BAD"]


@pytest.mark.parametrize("member", ["alloc", "write", "read", "load", "launch", "sync"])
def test_no_call_ends_the_program(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
  device = REF.open(0)
  opened = OpenDevice("BAD", device, REF.compiler("python"), "tiny-runtime-bad 1.2.3")
  memory = opened.alloc(4)
  calls: dict[str, Callable[[], object]] = {
    "alloc": lambda: opened.alloc(4),
    "write": lambda: opened.write(memory, 0, memoryview(b"abcd")),
    "read": lambda: opened.read(memory, 0, memoryview(bytearray(4))),
    "load": lambda: opened.load(SimpleNamespace(entry="k")),  # type: ignore[arg-type]
    "launch": lambda: opened.launch("k", None, [], [], (1,), (1,), False),
    "sync": opened.sync,
  }
  monkeypatch.setattr(device, member, lambda *given: sys.exit(3))
  with pytest.raises(Broken, match="tiny-runtime-bad 1.2.3 raised SystemExit: 3"):
    calls[member]()
  monkeypatch.undo()
  calls["sync"]()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signals")
def test_a_signal_handler_may_end_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
  """It may run while a plugin does."""
  device = REF.open(0)
  opened = OpenDevice("GOOD", device)
  monkeypatch.setattr(device, "sync", lambda: os.kill(os.getpid(), signal.SIGUSR1))
  before = signal.signal(signal.SIGUSR1, lambda number, frame: sys.exit(7))
  try:
    with pytest.raises(SystemExit, match="7"):
      opened.sync()
  finally:
    signal.signal(signal.SIGUSR1, before)


HANDLED = """
import signal, sys
from tiny_runtime import Device

calls, at = 0, int(sys.argv[1])

class Stopped(Exception): pass

class Handler:
  def __call__(self, number, frame): raise Stopped

signal.signal(signal.SIGUSR1, Handler())

def stop(frame, event, argument):
  global calls
  calls += frame.f_globals.get("__name__", "").startswith("tiny_runtime_fine")
  if calls == at:
    sys.setprofile(None)
    signal.raise_signal(signal.SIGUSR1)

sys.setprofile(stop)
try:
  Device["FINE"]
except Stopped:
  print("stopped")
sys.setprofile(None)
print(Device["FINE"].info.arch)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signals")
def test_an_error_of_a_signal_handler_is_nobodys_fault(make_plugin: MakePlugin) -> None:
  """A program's own limit of time may be over while a plugin is imported, asked what is usable, or opened."""
  make_plugin("tiny-runtime-fine", "FINE", source())
  told = [
    subprocess.run([sys.executable, "-c", HANDLED, str(at)], capture_output=True, text=True, check=True).stdout
    for at in (*range(1, 20), 1000)
  ]
  assert "stopped\npython\n" in told and told[-1] == "python\n"
  assert set(told) == {"stopped\npython\n", "python\n"}


def test_the_end_of_a_callers_stack_is_nobodys_fault(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-fine", "FINE", source())

  def deep(calls: int) -> None:
    if calls:
      deep(calls - 1)
    else:
      Device["FINE"]

  for left in range(5, 200, 5):
    with suppress(RecursionError):
      deep(sys.getrecursionlimit() - len(inspect.stack(0)) - left)
  assert Device["FINE"].info.arch == "python"


def test_a_plugin_without_end_is_broken(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", source(probe="return self.probe()"))
  with pytest.raises(Broken, match=r"probe\(\) raised RecursionError"):
    Device["BAD"]


# *** texts of plugins ***

CLEAR = "\x1b[2J\x1b]0;title\x07\r"
"""What clears a terminal and renames its window."""


@pytest.mark.parametrize(
  "text",
  [
    source(probe=f"return Unavailable({CLEAR!r}, {CLEAR!r})"),
    source(probe=f"raise ValueError({CLEAR!r})"),
    source(probe=f"return [{CLEAR!r}]", open=f"raise ValueError({CLEAR!r})"),
    source(open=f"raise Unavailable({CLEAR!r})"),
    source(first=f"raise ImportError({CLEAR!r})"),
    source(probe=f"print({CLEAR!r}, flush=True); os.abort()"),
  ],
)
def test_no_text_of_a_plugin_reaches_the_terminal_as_it_is(make_plugin: MakePlugin, text: str) -> None:
  make_plugin("tiny-runtime-bad", "BAD", text, version=f"1{CLEAR}")
  with pytest.raises(Exception) as caught:
    Device["BAD"]
  told = [str(caught.value), *traceback.format_exception(caught.value)]
  listed = subprocess.run([sys.executable, "-m", "tiny_runtime", "-v"], capture_output=True, text=True, check=True)
  assert "BAD" in listed.stdout
  for words in (*told, listed.stdout, listed.stderr):
    assert words == printable(words)


# *** names ***


def test_a_name_belongs_to_its_package(make_plugin: MakePlugin, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(discovery, "OWNERS", {"MINE": "tiny-runtime-mine"})
  make_plugin("a-stranger", "MINE", "raise AssertionError('this is never run')")
  make_plugin("Tiny-Runtime-Mine", "MINE", source())
  with pytest.warns(RuntimeWarning, match="a-stranger 1.2.3 .*which is that of Tiny-Runtime-Mine.*stall a-stranger"):
    assert Device["MINE"].info.arch == "python"
  assert "a_stranger" not in sys.modules
  (intruder,) = discovery.find("MINE").refused
  assert intruder.package == "a-stranger"


def test_the_list_shows_who_was_refused(make_plugin: MakePlugin, site: Path) -> None:
  make_plugin("a-stranger", "CPU", source())
  make_plugin("tiny-runtime-cpu", "CPU", source())
  listed = subprocess.run([sys.executable, "-m", "tiny_runtime"], capture_output=True, text=True, check=True).stdout
  rows = [line.split() for line in listed.splitlines() if "CPU" in line.split()[:2]]
  assert [(row[2], row[-2]) for row in rows] == [("ready", "tiny-runtime-cpu"), ("broken", "a-stranger")]


def test_ref_cannot_be_taken(make_plugin: MakePlugin) -> None:
  make_plugin("a-stranger", "REF", "raise AssertionError('this is never run')")
  Device.close()  # other tests have opened REF, and it warns when it is opened
  with pytest.warns(RuntimeWarning, match="a-stranger 1.2.3 .*is that of tiny-runtime, .*uninstall a-stranger"):
    assert Device["REF"].info.arch == "python"


def test_a_name_that_is_nobodys_is_nobodys(make_plugin: MakePlugin) -> None:
  make_plugin("a-stranger", "TWICE", source())
  make_plugin("another", "TWICE", source())
  # whichever comes first on the disk
  with pytest.raises(Broken, match="all but one of them: pip uninstall .*, or pip uninstall"):
    Device["TWICE"]


def test_a_name_in_lower_case_is_told_as_it_is(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "lower", source())
  with Context(DEVICE="lower"), pytest.raises(Broken, match="tiny-runtime-bad 1.2.3 .*'lower' is not a device name"):
    Device[Device.DEFAULT]


@pytest.mark.parametrize(
  ("setting", "told"),
  [("ref", "REF (the setting DEVICE)"), ("nothere", "NOTHERE (the setting DEVICE), which is not"), ("a b", "'a b' is")],
)
def test_the_list_says_which_device_the_setting_names(setting: str, told: str) -> None:
  environment = {**os.environ, "DEVICE": setting}
  found = subprocess.run([sys.executable, "-m", "tiny_runtime"], capture_output=True, text=True, env=environment)
  assert told in " ".join(found.stdout.split())
