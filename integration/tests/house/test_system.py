"""What only some operating systems have is named in one place of a package, which has a half for Windows."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tiny_runtime.system import windows

ROOT = Path(__file__).parents[3]

PLACES: dict[str, dict[str, str]] = {
  "tiny-uop": {"system": "forks, and the signal that shows a trace"},
  "tiny-runtime": {
    "system": "all that packages share",
    "hcq.system": "requests to Linux's kernel, for drivers of Linux",
  },
  "tiny-runtime-cpu": {"system": "caches, AMX, control groups, where threads run"},
  "tiny-dist": {
    "system": "files that other processes have open",
    "groups.mpi": "says that the next two are not for Windows",
    "groups.torchrun": "takes places over Unix sockets",
    "groups.placeholder": "the other end of these: a program that imports nothing of the package",
  },
  "tiny-llm": {
    "system": "processes apart",
    "text.template_worker": "limits: a program that imports nothing of the package",
  },
  "tiny-runtime-amd": {"gpus": "files of Linux's driver, and why there is none elsewhere"},
  "tiny-runtime-metal": {"backend": "says why there is none elsewhere", "objc": "a library of macOS"},
  "tiny-runtime-nv": {
    "gpus": "the driver's library by its name on each system",
    "kernel_driver": "files of Linux's driver, and why there is none elsewhere",
    "ptxas": "where NVIDIA's assembler lies if it is not on the PATH",
  },
}
"""Of each package the modules that may name them, and why."""

MODULES = set("fcntl grp msvcrt posix pty pwd resource termios tty winreg _winapi".split())
NAMES = {
  "os": "chown confstr fchmod fork forkpty geteuid getgid getpgid getpriority getuid initgroups kill killpg mkfifo "
        "name nice openpty pipe2 posix_spawn pread pwrite register_at_fork sched_getaffinity sched_setaffinity "
        "sched_yield setpgid setpriority setsid setuid startfile sysconf umask uname wait waitid waitpid",
  "sys": "getwindowsversion platform",
  "platform": "system release win32_ver mac_ver libc_ver",
  "socket": "AF_UNIX recv_fds send_fds",
  "ctypes": "FormatError GetLastError WinDLL WinError get_last_error oledll windll",
  "time": "CLOCK_MONOTONIC clock_gettime",
}  # fmt: skip
BEGINNINGS = {"os": ("O_NO", "O_CLOEXEC", "O_BINARY", "O_TEMP", "W", "P_", "POSIX_SPAWN", "SCHED_"),
              "mmap": ("MADV_", "MAP_", "PROT_"), "signal": ("SIGUSR", "SIGKILL", "SIGBREAK", "SIGALRM", "SIGHUP",
                                                              "SIGPIPE", "SIGCHLD", "CTRL_")}  # fmt: skip
ARGUMENTS = {"start_new_session", "preexec_fn", "pass_fds", "creationflags", "startupinfo", "process_group"}
PATHS = ("/proc/", "/sys/", "/dev/", "/tmp", "/etc/", "/usr/", "/lib/", "/var/", "/run/", "C:\\", "kernel32", "ntdll")


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
  """(line, what) of all that some systems lack."""
  for node in ast.walk(tree):
    match node:
      case ast.Import(names=names):
        yield from ((node.lineno, name.name) for name in names if name.name in MODULES)
      case ast.ImportFrom(module=str(module), names=names):
        if module in MODULES:
          yield node.lineno, module
        yield from ((node.lineno, f"{module}.{name.name}") for name in names if lacking(module, name.name))
      case ast.Attribute(value=ast.Name(id=module), attr=name) if lacking(module, name):
        yield node.lineno, f"{module}.{name}"
      case ast.Call(
        func=ast.Name(id="hasattr" | "getattr"), args=[ast.Name(id=module), ast.Constant(value=str(name)), *_]
      ):
        if lacking(module, name):
          yield node.lineno, f"{module}.{name}"
      case ast.Call(func=ast.Attribute(attr="CDLL" | "PyDLL"), args=[ast.Constant(value=None), *_]):
        yield node.lineno, "the libraries of this process"
      case ast.keyword(arg=str(name)) if name in ARGUMENTS:
        yield node.value.lineno, f"{name}="
      case ast.Constant(value=str(text)) if text.startswith(PATHS):
        yield node.lineno, text


def lacking(module: str, name: str) -> bool:
  return name in NAMES.get(module, "").split() or name.startswith(BEGINNINGS.get(module, ("\0",)))


def test_it_is_seen() -> None:
  lines = [
    "import fcntl", "from resource import getrusage", "from os import fork", "os.uname()", "hasattr(os, 'fork')",
    "mmap.MAP_PRIVATE", "signal.SIGUSR1", "ctypes.CDLL(None)", "Popen(x, pass_fds=(1,))", "open('/proc/self/maps')",
    "if sys.platform == 'linux': pass", "ctypes.CDLL('kernel32')",
  ]  # fmt: skip
  assert [line for line in lines if not list(named(ast.parse(line)))] == []
  usual = "os.open(os.devnull, os.O_RDWR | os.O_CREAT); signal.signal(signal.SIGINT, f); mmap.mmap(3, 4096); '/v1/x'"
  assert list(named(ast.parse(usual))) == []


@pytest.mark.parametrize("package", sorted(path.name for path in (ROOT / "packages").iterdir()))
def test_it_is_named_in_one_place(package: str) -> None:
  source = ROOT / "packages" / package / "src" / package.replace("-", "_")
  found, used = [], set()
  for path in sorted(source.rglob("*.py")):
    module = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    rows = list(named(ast.parse(path.read_text("utf-8"))))
    place = next((p for p in PLACES.get(package, {}) if module == p or module.startswith(p + ".")), None)
    if place is not None:
      used.add(place)
    else:
      found += [f"{path.relative_to(ROOT)}:{line}: {what}" for line, what in rows]
  assert not found, "goes into the package's module `system`, with a half for Windows:\n" + "\n".join(found)
  assert used == set(PLACES.get(package, {})), "a place of the table that there is not"


@pytest.mark.skipif(sys.platform == "win32", reason="that half asserts that it is another system")
def test_the_halves_have_the_same_names() -> None:
  from tiny_runtime.system import posix

  assert posix.__all__ == windows.__all__
  for name in posix.__all__:
    one, other = getattr(posix, name), getattr(windows, name)
    assert callable(one) is callable(other) or type(one) is type(other), name
    if inspect.isfunction(one):
      first, second = inspect.signature(one).parameters, inspect.signature(other).parameters
      needed = [p for p, about in second.items() if about.default is inspect.Parameter.empty]
      assert list(first) == list(second)[: len(first)] and len(needed) <= len(first), name


@pytest.mark.nightly
@pytest.mark.parametrize("platform", ("win32", "darwin"))
def test_types_on_other_systems(platform: str, tmp_path: Path) -> None:
  """`hatch run types-elsewhere`, as far as packages go."""
  sources = [str(path) for path in sorted((ROOT / "packages").glob("*/src"))]
  command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--platform", platform]
  done = subprocess.run([*command, "--cache-dir", str(tmp_path), *sources], cwd=ROOT, capture_output=True, text=True)
  assert done.returncode == 0, done.stdout
