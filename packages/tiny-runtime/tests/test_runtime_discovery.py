"""Discovery: which plugins there are, what state they are in, and that a broken one harms nobody."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tiny_runtime import Broken, Device, Incompatible, Unavailable
from tiny_runtime.contract import API
from tiny_runtime.devices import Devices
from tiny_runtime.plugins import discovery
from tiny_runtime.plugins.plugin import State
from tiny_uop import Context

MakePlugin = Callable[..., Path]

GOOD = """
from tiny_runtime.ref import BACKEND as REF
class Backend:
  api = (1, 0)
  ir = (1, 1)
  def probe(self): return ["one", "two"]
  def open(self, index): return REF.open(0)
  def compiler(self, arch): return REF.compiler("python")
BACKEND = Backend()
"""
ABSENT = """
from tiny_runtime import Unavailable
class Backend:
  api = (1, 0)
  ir = (1, 1)
  def probe(self): return Unavailable("there is no such card", "Buy one")
  def open(self, index): raise NotImplementedError
  def compiler(self, arch): raise NotImplementedError
BACKEND = Backend
"""


def state_of(name: str) -> tuple[State, str]:
  plugin = discovery.find(name)
  plugin.probe()
  return plugin.state, plugin.reason


def test_ready_plugin_is_used(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  plugin = discovery.find("GOOD")
  assert plugin.state is State.FOUND and "tiny_runtime_good" not in sys.modules
  assert plugin.distribution == "tiny-runtime-good 1.2.3"
  assert plugin.probe() is State.READY and plugin.archs == ("one", "two")
  devices = Devices()
  memory = devices["GOOD:1"].alloc(8)
  devices["GOOD:1"].free(memory)
  with pytest.raises(Unavailable, match="'GOOD:2' does not exist: GOOD has 2"):
    devices["GOOD:2"]


def test_class_as_entry_point(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-good", "GOOD", GOOD.replace("Backend()", "Backend"))
  assert state_of("GOOD")[0] is State.READY


def test_absent_hardware_is_unavailable(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-absent", "ABSENT", ABSENT)
  with pytest.raises(Unavailable, match="no such card.*Buy one"):
    Device["ABSENT"]
  assert state_of("ABSENT") == (State.UNAVAILABLE, "there is no such card")


def test_no_device_found_is_unavailable(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-empty", "EMPTY", GOOD.replace('["one", "two"]', "[]"))
  assert state_of("EMPTY") == (State.UNAVAILABLE, "it found no device")


BROKEN = {
  "own module missing": (None, "its module 'tiny_runtime_bad' is missing"),
  "raises at import": ("raise ValueError('oh no')", "raised ValueError: oh no"),
  "syntax error": ("def f(:", "raised SyntaxError"),
  "dependency missing": ("import no_such_library_xyz", "needs the module 'no_such_library_xyz'"),
  "ends the process": ("import sys\nsys.exit(3)", "raised SystemExit: 3"),
  "base exception": ("class Odd(BaseException): pass\nraise Odd('x')", "raised Odd: x"),
  "attribute missing": ("OTHER = 1", "raised AttributeError"),
  "wrong type": ("BACKEND = {'a': 1}", "is of type dict, not a Backend: it has no api, ir, probe, open, compiler"),
  "half a backend": (
    "class BACKEND:\n  api = (1, 0)\n  ir = (1, 1)\n  def probe(self): return ['x']",
    "it has no open, compiler",
  ),
  "constructor raises": ("class BACKEND:\n  def __init__(self): raise OSError('hm')", "raised OSError: hm"),
  "ir of wrong type": (GOOD.replace("(1, 1)", "1"), "its ir is 1, expected"),
  "api of wrong type": (GOOD.replace("(1, 0)", "'1.0'"), "its api is '1.0', expected"),
  "probe raises": (GOOD.replace('return ["one", "two"]', "raise KeyError('k')"), "raised KeyError"),
  "probe exits": (GOOD.replace('return ["one", "two"]', "raise SystemExit"), "raised SystemExit"),
  "probe gives a string": (GOOD.replace('["one", "two"]', '"gfx942"'), "probe\\(\\) gave 'gfx942'"),
}


@pytest.mark.parametrize(("source", "reason"), BROKEN.values(), ids=BROKEN)
def test_broken_plugin(make_plugin: MakePlugin, source: str | None, reason: str) -> None:
  make_plugin("tiny-runtime-bad", "BAD", source)
  for _ in range(2):  # the recorded state, the second time
    with pytest.raises(Broken, match=reason) as caught:
      Device["BAD"]
    assert "tiny-runtime-bad 1.2.3" in str(caught.value)
  Device["HOST"].sync()  # the others still work


def test_traceback_is_kept(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", "def inner(): raise ValueError('deep')\ninner()")
  with pytest.raises(Broken) as caught:
    Device["BAD"]
  assert "in inner" in "".join(caught.value.__notes__)


def test_keyboard_interrupt_is_the_users(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-slow", "SLOW", "raise KeyboardInterrupt")
  plugin = discovery.find("SLOW")
  with pytest.raises(KeyboardInterrupt):
    plugin.load()
  assert plugin.state is State.FOUND


@pytest.mark.parametrize(("ir", "upgrade"), [("(2, 4)", "tiny-uop"), ("(0, 0)", "tiny-runtime-bad")])
def test_other_ir(make_plugin: MakePlugin, ir: str, upgrade: str) -> None:
  make_plugin("tiny-runtime-bad", "BAD", GOOD.replace("(1, 1)", ir))
  with pytest.raises(Incompatible, match=rf"of the IR, this tiny-uop has 1. pip install --upgrade {upgrade}$"):
    Device["BAD"]


@pytest.mark.parametrize(
  ("api", "upgrade"), [("(1, 99)", "tiny-runtime"), ("(3, 0)", "tiny-runtime"), ("(0, 9)", "tiny-runtime-bad")]
)
def test_other_api(make_plugin: MakePlugin, api: str, upgrade: str) -> None:
  make_plugin("tiny-runtime-bad", "BAD", GOOD.replace("(1, 0)", api))
  with pytest.raises(Incompatible, match=rf"this tiny-runtime has {API[0]}.{API[1]}. pip install --upgrade {upgrade}$"):
    Device["BAD"]


@pytest.mark.parametrize(("group", "upgrade"), [("v0", "tiny-runtime-bad"), ("v2", "tiny-runtime")])
def test_other_major_is_reported_without_running_it(make_plugin: MakePlugin, group: str, upgrade: str) -> None:
  make_plugin("tiny-runtime-bad", "BAD", "raise AssertionError('ran')", group=f"tiny_runtime.backends.{group}")
  plugin = discovery.plugins()["BAD"]
  assert plugin.state is State.INCOMPATIBLE and plugin.what_to_do == f"pip install --upgrade {upgrade}"
  with pytest.raises(Incompatible, match=f"version {group[1:]} of the plugin contract"):
    Device["BAD"]


def test_package_for_two_majors(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-good", "GOOD", GOOD, group="tiny_runtime.backends.v2", attribute="NEWER")
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  assert state_of("GOOD")[0] is State.READY


def test_duplicate_name_is_refused_naming_both(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-first", "TWICE", GOOD)
  make_plugin("tiny-runtime-second", "TWICE", GOOD)
  with pytest.raises(Broken, match="several packages claim the name") as caught:
    Device["TWICE"]
  assert "tiny-runtime-first 1.2.3" in str(caught.value) and "tiny-runtime-second 1.2.3" in str(caught.value)
  assert not {"tiny_runtime_first", "tiny_runtime_second"} & set(sys.modules)


def test_same_distribution_twice_on_the_path_is_one(make_plugin: MakePlugin, site: Path) -> None:
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  found = discovery.scan([*distributions(path=[str(site)]), *distributions(path=[str(site)])])
  assert found["GOOD"].state is State.FOUND


@pytest.mark.parametrize("name", ["HOST", "DISK", "lower", "A B", "X:1"])
def test_bad_names_are_refused(make_plugin: MakePlugin, site: Path, name: str) -> None:
  make_plugin("tiny-runtime-bad", name, GOOD)
  found = discovery.scan(distributions(path=[str(site)]))
  assert [plugin.state for plugin in found.values()] == [State.BROKEN]


def test_damaged_metadata_of_others_is_ignored(make_plugin: MakePlugin, site: Path) -> None:
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  (site / "other-1.dist-info").mkdir()
  (site / "other-1.dist-info" / "entry_points.txt").write_bytes(b"[tiny_runtime.backends.v1]\n\xff\xfe = nonsense\nX")
  assert "GOOD" in discovery.scan(distributions(path=[str(site)]))


def test_unknown_device_says_what_to_install() -> None:
  with pytest.raises(Unavailable, match="no installed package provides device 'AMD'.*pip install tiny-runtime-amd"):
    Device["AMD"]
  with pytest.raises(Unavailable, match="'NONSENSE'; installed: .*REF"):
    Device["NONSENSE"]


def test_open_that_raises(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", GOOD.replace("return REF.open(0)", "return 1 / 0"))
  with pytest.raises(Broken, match="opening BAD: tiny-runtime-bad 1.2.3 raised ZeroDivisionError"):
    Device["BAD"]


def test_open_that_gives_no_device(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", GOOD.replace("return REF.open(0)", "return [1]"))
  with pytest.raises(Broken, match="gave a list, which has no info, alloc"):
    Device["BAD"]


# *** the default device ***


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime.devices.DEFAULT_ORDER", ("BAD", "ABSENT", "GOOD"))


@pytest.mark.usefixtures("order")
def test_default_is_silent_about_absent_hardware(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-absent", "ABSENT", ABSENT)
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  with warnings.catch_warnings(), Context(DEVICE=""):
    warnings.simplefilter("error")
    assert Devices().DEFAULT == "GOOD"


@pytest.mark.usefixtures("order")
def test_default_warns_once_about_a_broken_one(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", "raise ValueError('oh no')")
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  devices = Devices()
  with warnings.catch_warnings(record=True) as seen, Context(DEVICE=""):
    warnings.simplefilter("always")
    assert [devices.DEFAULT for _ in range(3)] == ["GOOD"] * 3
  assert len(seen) == 1 and "oh no" in str(seen[0].message) and "Using GOOD instead" in str(seen[0].message)


@pytest.mark.usefixtures("order")
def test_only_the_device_asked_for_is_imported(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", "raise AssertionError")
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  with Context(DEVICE="good:1"):
    devices = Devices()
    assert devices.DEFAULT == "GOOD:1"
    assert devices["GOOD:1"].info.arch == "python"
  assert "tiny_runtime_bad" not in sys.modules and discovery.find("BAD").state is State.FOUND


@pytest.mark.usefixtures("order")
def test_nothing_usable_says_what_to_do(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-absent", "ABSENT", ABSENT)
  with pytest.raises(Unavailable, match=r"(?s)ABSENT .*no such card.*DEVICE"), Context(DEVICE=""):
    _ = Devices().DEFAULT


def test_nothing_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr("tiny_runtime.devices.plugins", dict)
  with pytest.raises(Unavailable, match="pip install tiny-runtime-cpu"), Context(DEVICE=""):
    _ = Devices().DEFAULT


def test_what_is_available(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-good", "GOOD", GOOD)
  make_plugin("tiny-runtime-absent", "ABSENT", ABSENT)
  found = list(Devices().get_available_devices())
  assert "GOOD" in found and "REF" in found and "ABSENT" not in found and found == sorted(found)
  with Context(DEVICE="GOOD"):
    devices = Devices()
    assert devices.default is devices["GOOD"]


def test_reference_backend_is_never_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
  only_ref = {"REF": discovery.find("REF")}
  monkeypatch.setattr("tiny_runtime.devices.plugins", lambda: only_ref)
  with (
    pytest.raises(Unavailable, match=r"pip install tiny-runtime-cpu, or set DEVICE to one of those installed \(REF\)"),
    Context(DEVICE=""),
  ):
    _ = Devices().DEFAULT


def test_import_reads_no_metadata(make_plugin: MakePlugin) -> None:
  make_plugin("tiny-runtime-bad", "BAD", "raise AssertionError")
  code = """
import sys
opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
import tiny_runtime
assert not [path for path in opened if "-info" in path]
assert "importlib.metadata" not in sys.modules
assert tiny_runtime.plugins.discovery.plugins()
assert [path for path in opened if "-info" in path], "so it would have been seen"
assert "tiny_runtime_bad" not in sys.modules and "tiny_runtime.ref" not in sys.modules
"""
  subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
  ("given", "expected"),
  [
    ("cpu", "CPU"),
    ("CPU:0", "CPU"),
    ("amd:1", "AMD:1"),
    ("DISK:/a/B", "DISK:/a/B"),
    ("disk:/x", "DISK:/x"),
    ("CPU:01", "CPU:1"),
  ],
)
def test_canonicalize(given: str, expected: str) -> None:
  assert Device.canonicalize(given) == expected


@pytest.mark.parametrize("given", ["", "CPU:", "CPU:x", "CPU:-1", "DISK", "DISK:", "1CPU", "a b"])
def test_canonicalize_refuses(given: str) -> None:
  with pytest.raises(ValueError, match="is not a device name"):
    Device.canonicalize(given)
