"""The wheels, their tests and the demo on processors that this machine is not, under qemu's emulation of programs.

python integration/emulated/run.py aarch64                      # all parts, on the processors that are listed for it
python integration/emulated/run.py x86_64 --cpu Nehalem --only kit
python integration/emulated/run.py aarch64 --cpu max -- -c 'import platform; print(platform.machine())'
python integration/emulated/run.py x86_64 --cpu host --python 3.14     # another Python, not emulated

See README.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "out" / "emulated"
SUITES = {"3.11": "bookworm", "3.13": "trixie", "3.14": "sid", "3.15": "experimental"}
"""Debian's suite that has a Python."""
HOST = "host"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
WHEELS = (
  "numpy",
  "llvmlite",
  "hypothesis",
  "pytest",
  "pytest-xdist",
  "pytest-timeout",
  "scikit-learn",
  "tqdm",
  "pillow",
)
OURS = ("tiny-uop", "tiny-sched", "tiny-codegen", "tiny-runtime", "tiny-runtime-cpu", "tiny-tensor")
SECONDS = 3 * 3600

HWCAPS = {
  16: "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop sha3 sm3 "
      "sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs sb paca pacg",
  26: "dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svef32mm svef64mm svebf16 i8mm bf16 "
      "dgh rng bti mte ecv afp rpres",
}  # fmt: skip
"""Names of the bits of getauxval's answers, from the lowest on: Linux, Documentation/arch/arm64/elf_hwcaps.rst."""


@dataclass(frozen=True)
class Machine:
  """What is emulated: Debian's name of the architecture, qemu's program, and processors by qemu's names. The numbers
  are what `/proc/cpuinfo` says of an arm64 processor (implementer, part), from which LLVM takes its name."""

  debian: str
  qemu: str
  processors: dict[str, tuple[int, int]]


MACHINES = {
  "aarch64": Machine(
    "arm64", "qemu-aarch64-static", {"max": (0, 0x51), "neoverse-n1": (0x41, 0xD0C), "a64fx": (0x46, 0x001)}
  ),
  "x86_64": Machine("amd64", "qemu-x86_64-static", {"Haswell": (0, 0), "Nehalem": (0, 0)}),
}
OPTIONS = {"max": ",sve-default-vector-length=32", "Haswell": ",-pcid,-x2apic,-tsc-deadline,-hle,-invpcid,-rtm"}
"""What qemu is told of a processor besides its name: registers of 256 bits, with which kernels are NEON's; features
that it warns of, as it cannot emulate them."""
PYTEST = ("-m", "pytest", "-q", "-n", "2", "-rs", "--durations=10", "-o", "faulthandler_timeout=1800")
"""A test that starts three processes can take ten minutes where the machine does something else, too."""
TENSOR_TESTS = "realize products sort parts random symbolic special gradient"
PARTS = {
  "table": ("-m", "tiny_runtime"),
  "kit": (*PYTEST, "--pyargs", "tiny_runtime.conformance", "--backend", "CPU"),
  "cpu": (*PYTEST, "packages/tiny-runtime-cpu/tests",
          "--ignore=packages/tiny-runtime-cpu/tests/test_cpu_conformance.py"),
  "tensor": (*PYTEST, *[f"packages/tiny-tensor/tests/test_tensor_{name}.py" for name in TENSOR_TESTS.split()]),
  "demo": ("integration/examples/digits.py", "--steps", "100"),
}  # fmt: skip


def main() -> int:
  parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
  parser.add_argument("machine", choices=MACHINES)
  parser.add_argument(
    "--cpu", action="append", metavar="NAME", help="a processor, by qemu's name, or `host`; several times"
  )
  parser.add_argument("--python", choices=SUITES, default="3.11", help="which version (default: 3.11)")
  parser.add_argument("--only", action="append", choices=PARTS, help="a part; several times")
  parser.add_argument("--folder", type=Path, default=FOLDER, help=f"what is fetched and built (default: {FOLDER})")
  parser.usage = f"{parser.format_usage().strip().removeprefix('usage: ')} [-- ARGUMENT ...]"
  parser.epilog = "What follows -- are arguments of Python, which is run instead of the parts."
  # argparse takes a list of arguments for over where an option comes before it
  given, command = sys.argv[1:], list[str]()
  if "--" in given:
    given, command = given[: given.index("--")], given[given.index("--") + 1 :]
  options = parser.parse_args(given)
  machine = MACHINES[options.machine]
  system = System(options.machine, machine, options.folder.resolve(), options.python)
  system.prepare()
  rows = []
  for cpu in options.cpu or machine.processors:
    if command:
      return system.run(cpu, command, None)
    for name in options.only or PARTS:
      print(f"{options.machine} {cpu}, Python {options.python}: {name}", flush=True)
      log = system.folder / "logs" / f"{options.machine}-{cpu}-{options.python}-{name}.txt"
      began = time.monotonic()
      status = system.run(cpu, PARTS[name], log)
      rows.append((cpu, name, "passed" if status == 0 else f"exit {status}", f"{time.monotonic() - began:.0f} s",
                   summary(log.read_text(errors="replace"))))  # fmt: skip
      print("  " + "  ".join(rows[-1][2:]), flush=True)
      if status:
        print("\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-30:]))
  widths = [max(len(row[n]) for row in rows) for n in range(4)]
  print("\n" + "\n".join("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[4]]) for row in rows))
  print(f"logs: {system.folder / 'logs'}")
  return int(any(row[2] != "passed" for row in rows))


def summary(text: str) -> str:
  """The last line that says something: of pytest, its counts."""
  lines = [line.strip("= ") for line in text.splitlines() if line.strip()]
  counts = [line for line in lines if re.match(r"\d+ (passed|failed|skipped)", line)]
  return (counts or lines or [""])[-1][:100]


class System:
  """A folder with another machine's Python, wheels for it and ours, and qemu, made without root's rights."""

  def __init__(self, name: str, machine: Machine, folder: Path, version: str) -> None:
    self.name, self.machine, self.folder, self.version = name, machine, folder, version
    self.root, self.site, self.wheels, self.ours = (
      folder / f"{part}-{name}-{version}" for part in ("root", "site", "wheels", "ours")
    )
    self.qemu = folder / "qemu" / "usr" / "bin" / machine.qemu

  def prepare(self) -> None:
    """Fetches and unpacks what is not there, and installs our wheels anew."""
    for part in ("packages", "logs"):
      (self.folder / part).mkdir(parents=True, exist_ok=True)
    if not self.qemu.exists():
      self.unpack(self.fetch(self.native(), "bookworm", "qemu-user-static"), self.folder / "qemu")
    if not (self.root / "ready").exists():
      packages = self.fetch(self.machine.debian, SUITES[self.version], f"python{self.version}", "libstdc++6")
      self.unpack(packages, self.root)
      (self.root / "ready").touch()
    if not (self.site / "ready").exists():
      shutil.rmtree(self.site, ignore_errors=True)
      self.uv("pip", "install", "--target", str(self.site), "--only-binary", ":all:", "--python-version", self.version,
              "--python-platform", f"{self.name}-manylinux_2_28", *WHEELS)  # fmt: skip
      (self.site / "sitecustomize.py").write_text(STARTS)
      (self.site / "ready").touch()
    for old in (self.wheels, self.ours):
      shutil.rmtree(old, ignore_errors=True)
    for name in OURS:
      self.uv("build", "--wheel", "--out-dir", str(self.wheels), str(ROOT / "packages" / name))
    self.uv("pip", "install", "--target", str(self.ours), "--no-deps", "--python-version", self.version,
            *map(str, self.wheels.glob("*.whl")))  # fmt: skip

  def run(self, cpu: str, arguments: Sequence[str], log: Path | None) -> int:
    """Runs Python with the arguments; what it says goes to a file, or to the terminal. Gives back its status."""
    python = self.python(cpu)
    command = [str(python), *arguments]
    if log is None:
      return subprocess.run(command, cwd=ROOT).returncode
    with log.open("wb") as file:
      try:
        return subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, timeout=SECONDS).returncode
      except subprocess.TimeoutExpired:
        file.write(f"\nnot over after {SECONDS} s\n".encode())
        return 124

  def python(self, cpu: str) -> Path:
    """A command that is Python on that processor. All share a cache of kernels, where none is given."""
    called = f"{self.name}-{self.version}-{cpu}"
    root, command = self.folder / f"root-{called}", self.folder / "bin" / f"python-{called}"
    if not root.exists():
      # what qemu looks for before the host's: another's files, and a list of processors for each
      made = root.with_suffix(".new")
      shutil.rmtree(made, ignore_errors=True)
      (made / "proc").mkdir(parents=True)
      for entry in self.root.iterdir():
        (made / entry.name).symlink_to(entry)
      made.rename(root)
    environment = {
      "PYTHONPATH": os.pathsep.join(map(str, (self.ours, self.site))), "PYTHONDONTWRITEBYTECODE": "1",
      "OPENBLAS_CORETYPE": "ARMV8" if self.name == "aarch64" else "Nehalem", "PYTHONHASHSEED": "0",
      "TRIAL_SECONDS": "120",  # a plugin is tried in a process, which takes an emulator over 20 s to start
    }  # fmt: skip
    if cpu == HOST:
      environment["PYTHONHOME"] = f"{root}/usr"
    if self.name == "aarch64" and cpu != HOST and not (root / "proc" / "cpuinfo").exists():
      (root / "proc" / "cpuinfo").write_text(self.cpuinfo(cpu, root, environment))
    command.parent.mkdir(exist_ok=True)
    exports = [f"export {name}='{value}'" for name, value in environment.items()]
    cache = f"${{XDG_CACHE_HOME:-{self.folder / 'cache' / self.name}}}"
    command.write_text("\n".join([
      "#!/bin/sh", *exports, f"export EMULATED_PYTHON='{command}'", f'export XDG_CACHE_HOME="{cache}"',
      f"exec {self.start(cpu, root)} '{root}/usr/bin/python{self.version}' \"$@\"", "",
    ]))  # fmt: skip
    command.chmod(0o755)
    return command

  def start(self, cpu: str, root: Path) -> str:
    """What runs the other system's programs: qemu, or that system's own loader on this processor."""
    if cpu != HOST:
      return f"'{self.qemu}' -L '{root}' -cpu {cpu}{OPTIONS.get(cpu, '')}"
    loader = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}[self.name]
    libraries = [f"{root}/{folder}/{self.name}-linux-gnu" for folder in ("usr/lib", "lib")]
    found = next(path for path in (root / loader, root / "usr" / loader) if path.exists())
    return f"'{found}' --library-path '{':'.join(libraries)}'"

  def cpuinfo(self, cpu: str, root: Path, environment: dict[str, str]) -> str:
    """What Linux would list of the processor, by what it says of itself: qemu shows the host's list."""
    ask = f"from ctypes import *; f = CDLL(None).getauxval; f.restype = c_ulong; print([f(n) for n in {list(HWCAPS)}])"
    command = [str(self.qemu), "-L", str(root), "-cpu", cpu, f"{root}/usr/bin/python{self.version}", "-c", ask]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    words = [int(word) for word in re.findall(r"\d+", said)]
    features = [
      name for names, word in zip(HWCAPS.values(), words) for n, name in enumerate(names.split()) if word >> n & 1
    ]
    implementer, part = self.machine.processors.get(cpu, (0, 0x51))
    one = (f"BogoMIPS\t: 100.00\nFeatures\t: {' '.join(features)}\nCPU implementer\t: {implementer:#04x}\n"
           f"CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: {part:#05x}\nCPU revision\t: 0\n")  # fmt: skip
    return "\n".join(f"processor\t: {n}\n{one}" for n in range(os.cpu_count() or 1))

  # *** fetching ***

  def native(self) -> str:
    return subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()

  def fetch(self, architecture: str, suite: str, *names: str) -> Iterator[Path]:
    """Debian's packages, with all that they need, into a folder; apt-get with lists and states of its own."""
    place = self.folder / "packages" / f"{architecture}-{suite}-{names[0]}"
    for part in ("lists/partial", "archives/partial"):
      (place / part).mkdir(parents=True, exist_ok=True)
    (place / "status").touch()
    suites = ("sid", suite) if suite == "experimental" else (suite,)
    lines = [f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {each} main\n" for each in suites]
    (place / "sources.list").write_text("".join(lines))
    settings = {
      "APT::Architecture": architecture, "APT::Architectures": architecture, "Dir::State": place,
      "Dir::State::lists": place / "lists", "Dir::State::status": place / "status", "Dir::Cache": place,
      "Dir::Cache::archives": place / "archives", "Dir::Etc::sourcelist": place / "sources.list",
      "Dir::Etc::sourceparts": "/dev/null", "Debug::NoLocking": "1", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ["apt-get", "-qq", *[word for key, value in settings.items() for word in ("-o", f"{key}={value}")]]
    checked([*apt, "update"])
    checked([*apt, "install", "-y", "--download-only", "--no-install-recommends", *names])
    return (place / "archives").glob("*.deb")

  @staticmethod
  def unpack(packages: Iterator[Path], folder: Path) -> None:
    for package in packages:
      checked(["dpkg-deb", "-x", str(package), str(folder)])

  @staticmethod
  def uv(*arguments: str) -> None:
    if shutil.which("uv") is None:
      sys.exit("uv: not installed; `hatch run emulated` brings it")
    checked(["uv", "-q", *arguments])


STARTS = '''"""Child processes start by the same emulator: this machine's kernel cannot run the interpreter itself."""
import os, sys
sys.executable = sys._base_executable = os.environ.get("EMULATED_PYTHON", sys.executable)
'''


def checked(command: Sequence[str]) -> None:
  """Runs a command; what it says comes only where it fails."""
  done = subprocess.run(command, capture_output=True, text=True)
  if done.returncode:
    sys.exit(f"{' '.join(command[:3])} …: exit {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
  sys.exit(main())
