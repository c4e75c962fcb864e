"""`python -m tiny_runtime new NAME`: a plugin package to begin with.

The files are those in the folder `template`, with `@device@` and the like replaced. What comes out can be installed and
passes levels 0 and 1 of the conformance kit.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tiny_runtime.contract import API
from tiny_runtime.plugins.discovery import PREFIX, plugins
from tiny_runtime.plugins.known import OWNERS
from tiny_runtime.storage import BUILT_IN
from tiny_uop import IR_VERSION
from tiny_uop.records import dataclass

TEMPLATE = Path(__file__).with_name("template")
FILES = {
  "pyproject.toml": "pyproject.toml.txt",
  "README.md": "README.md.txt",
  "CHANGELOG.md": "CHANGELOG.md.txt",
  ".gitignore": "gitignore.txt",
  ".github/workflows/ci.yml": "github/ci.yml.txt",
  "src/@module@/__init__.py": "src/init.py.txt",
  "src/@module@/backend.py": "src/backend.py.txt",
  "src/@module@/compiler.py": "src/compiler.py.txt",
  "src/@module@/device.py": "src/device.py.txt",
  "src/@module@/py.typed": "src/py.typed.txt",
  "tests/test_@name@_conformance.py": "tests/conformance.py.txt",
  "tests/test_@name@_backend.py": "tests/backend.py.txt",
}
"""File of the package → file of the template."""

LONGEST = 20
"""Letters of a name: it stands in every line of a table."""

NEXT = """\
wrote {folder}: the device {device}, which has memory and runs no kernels yet

  cd {folder}
  pip install -e '.[test]'
  python -m tiny_runtime      # {device} is listed as ready
  pytest                      # it passes levels 0 and 1 of the conformance kit

Then fill in what is marked STEP, in this order: backend.py, memory in device.py, compiler.py, load and launch in
device.py. README.md says what each step has to pass.
"""


@dataclass(frozen=True)
class Names:
  """What the parts of a plugin are called."""

  device: str
  """`MY_NPU`, as users write it."""

  @classmethod
  def of(cls, name: str) -> Names:
    """Take a name as it was typed. Raises ValueError, saying what is wrong with it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*", name):
      raise ValueError(
        f"{name!r} cannot be the name of a device: expected letters, digits, and - or _ between them, a letter first,"
        " as in toy or my-npu"
      )
    if len(name) > LONGEST:
      raise ValueError(f"{name!r} is too long for the name of a device, which people type: {LONGEST} letters at most")
    names = cls(name.upper().replace("-", "_"))
    if names.device in BUILT_IN:
      raise ValueError(f"the name {names.device} is taken by storage of tiny-runtime: choose another")
    if names.device in OWNERS:
      raise ValueError(f"the name {names.device} is taken by {OWNERS[names.device]}: choose another")
    if (known := plugins().get(names.device)) is not None and known.package != names.package:
      raise ValueError(
        f"the name {names.device} is taken by {known.distribution}, which is installed here: of two packages with one"
        " device, neither loads. Choose another, or uninstall that"
      )
    return names

  @property
  def name(self) -> str:
    """`my_npu`, in names of files."""
    return self.device.lower()

  @property
  def package(self) -> str:
    """`tiny-runtime-my-npu`, as pip takes it."""
    return f"tiny-runtime-{self.name.replace('_', '-')}"

  @property
  def module(self) -> str:
    """`tiny_runtime_my_npu`, as Python imports it."""
    return f"tiny_runtime_{self.name}"

  @property
  def prefix(self) -> str:
    """`MyNpu`, in names of classes."""
    return "".join(word.capitalize() for word in self.device.split("_"))

  def replace_in(self, text: str) -> str:
    """The text of a template for these names."""
    values = {
      "device": self.device, "name": self.name, "package": self.package, "module": self.module, "prefix": self.prefix,
      "group": f"{PREFIX}{API[0]}", "api": repr(API), "ir": repr((IR_VERSION, IR_VERSION)),
      "uop": compatible("tiny-uop"), "runtime": compatible("tiny-runtime"), "codegen": compatible("tiny-codegen"),
      "conformance": compatible("tiny-runtime", "[conformance]"),
    }  # fmt: skip
    return re.sub(r"@([a-z]+)@", lambda found: values[found[1]], text)


def compatible(package: str, extra: str = "") -> str:
  """A requirement that takes what is installed here and what is compatible with it."""
  try:
    major, minor = (int(part) for part in version(package).split(".")[:2])
  except PackageNotFoundError:  # in a source tree that is on the path and not installed
    return package + extra
  end = f"{major}.{minor + 1}" if major == 0 else f"{major + 1}"
  return f"{package}{extra}>={major}.{minor},<{end}"


def write_plugin(name: str, into: Path) -> Path:
  """Write the package of device `name` into a new folder in `into`; gives the folder.

  Raises ValueError for a name that cannot be used; FileExistsError if there is such a folder already, which stays as
  it is. Either all files are there at the end or none.
  """
  names = Names.of(name)
  folder = into / names.package
  if os.path.lexists(folder):
    raise FileExistsError(f"{folder} is there already: nothing was written. Move it, or choose another name or --into")
  if not into.is_dir():
    raise FileNotFoundError(f"{into} is no folder: nothing was written")
  partial = Path(tempfile.mkdtemp(prefix=f".{names.package}-", dir=into))
  try:
    for target, source in FILES.items():
      path = partial / names.replace_in(target)
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text(names.replace_in((TEMPLATE / source).read_text(encoding="utf-8")), encoding="utf-8")
    partial.chmod(0o755)  # temporary folders are private
    partial.rename(folder)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  return folder


def main(arguments: list[str]) -> int:
  """The command. Status 0: written; 2: refused, with the reason on standard error."""
  parser = argparse.ArgumentParser(
    prog="python -m tiny_runtime new", description="Write a plugin package to begin a backend with."
  )
  parser.add_argument("name", help="name of the device, as toy or my-npu: the package is tiny-runtime-NAME")
  parser.add_argument("--into", type=Path, default=Path(), help="folder to write it into (default: this one)")
  given = parser.parse_args(arguments)
  try:
    folder = write_plugin(given.name, given.into)
  except (ValueError, OSError) as error:
    print(f"{parser.prog}: {error}", file=sys.stderr)
    return 2
  print(NEXT.format(folder=folder, device=Names.of(given.name).device), end="")
  return 0
