"""C++ → something to call, with whatever compiler this machine has."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = "GPU_MODEL_FOLDER"
_numbers = count()
COMMON = ("-std=c++17", "-fPIC", "-w")
# every access to memory and every overflow becomes a call, which machine.cpp answers
WATCHED = ("-fsanitize=thread", "-fsanitize=signed-integer-overflow,shift,integer-divide-by-zero")
KERNEL = (*COMMON, *WATCHED, "-O1", "-ffp-contract=off", "-fno-math-errno", "-fsigned-char", "-fno-strict-aliasing")


class Refused(Exception):
  """A compiler did not take a source; says what it said."""


def compiler() -> str | None:
  """The C++ compiler: $CXX, else g++ or clang++; None where there is none."""
  return next(
    (path for name in (os.environ.get("CXX"), "g++", "clang++") if name and (path := shutil.which(name))), None
  )


@cache
def folder() -> Path:
  """Where this process and those that it starts keep what they compile; it goes when the first of them does."""
  if (given := os.environ.get(FOLDER)) and Path(given).is_dir():
    return Path(given)
  made = tempfile.TemporaryDirectory(prefix="gpu-model-")
  atexit.register(made.cleanup)
  os.environ[FOLDER] = made.name
  return Path(made.name)


def built(source: str, flags: Sequence[str]) -> Path:
  """A shared object of C++ source, compiled once. Raises Refused."""
  path = folder() / (sha256("\0".join([source, *flags]).encode()).hexdigest()[:32] + ".so")
  if not path.exists():
    cxx = compiler()
    if cxx is None:
      raise Refused("there is no C++ compiler: install g++ or clang++, or name one with CXX")
    # linked in a step of its own: with the flags of a sanitizer the linker would add the sanitizer
    written = new_object()
    _run([cxx, *flags, f"-I{HERE}", "-c", "-xc++", "-", "-o", str(written)], source)
    os.replace(linked(written), path)  # other processes see all of it or nothing
  return path


def new_object() -> Path:
  """A name for an object file that no other has: a loaded library is known by its name."""
  return folder() / f"{os.getpid()}-{next(_numbers)}.o"


def linked(path: Path) -> Path:
  """The shared object of an object file, which goes. Raises Refused."""
  made = path.with_suffix(".so")
  _run([compiler() or "g++", "-shared", str(path), "-o", str(made), "-lm"], "")
  path.unlink()
  return made


def _run(command: Sequence[str], text: str) -> None:
  done = subprocess.run(command, input=text, capture_output=True, text=True)
  if done.returncode:
    raise Refused(done.stderr)
