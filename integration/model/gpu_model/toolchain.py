"""C++ → something to call, with whatever compiler this machine has."""

from __future__ import annotations

import atexit
import os
import re
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
KERNELS = ("-lm", "-lc", "-lgcc")
"""Libraries of a kernel: a linker that looks into C++'s takes twice as long."""


class Refused(Exception):
  """A compiler did not take a source; says what it said."""


def compiler() -> str | None:
  """The C++ compiler: $CXX, else g++ or clang++; None where there is none."""
  return next(
    (path for name in (os.environ.get("CXX"), "g++", "clang++") if name and (path := shutil.which(name))), None
  )


@cache
def folder() -> Path:
  """Where this process and those that it starts keep what they compile: what GPU_MODEL_FOLDER names, or one that goes
  when the first of them does."""
  if given := os.environ.get(FOLDER):
    Path(given).mkdir(parents=True, exist_ok=True)
    return Path(given)
  made = tempfile.TemporaryDirectory(prefix="gpu-model-")
  atexit.register(made.cleanup)
  os.environ[FOLDER] = made.name
  return Path(made.name)


@cache
def headers() -> str:
  """What the headers that sources may include say: a folder may be older than they are."""
  found = sorted(path for path in HERE.rglob("*") if path.suffix in (".h", "") and path.is_file())
  return sha256(b"\0".join(path.read_bytes() for path in found)).hexdigest()[:16]


@cache
def precompiled(header: str, flags: Sequence[str]) -> Path:
  """A folder in which the compiler finds a header that it has already read, which halves the time of a kernel; g++
  takes it from there for the same flags, others look further. Raises Refused."""
  key = "\0".join([header, headers(), compiler() or "", *flags])
  place = folder() / sha256(key.encode()).hexdigest()[:32]
  made = place / f"{header}.gch"
  if not made.exists():
    made.parent.mkdir(parents=True, exist_ok=True)
    written = new_object()
    _run([compiler() or "g++", *flags, f"-I{HERE}", "-xc++-header", str(HERE / header), "-o", str(written)], "")
    os.replace(written, made)
  return place


def built(source: str, flags: Sequence[str]) -> Path:
  """A shared object of C++ source, compiled once. Raises Refused."""
  cxx = compiler()
  path = folder() / (sha256("\0".join([source, headers(), cxx or "", *flags]).encode()).hexdigest()[:32] + ".so")
  if not path.exists():
    if cxx is None:
      raise Refused("there is no C++ compiler: install g++ or clang++, or name one with CXX")
    first = re.match(r'#include "([^"]*)"', source)
    before = [f"-I{precompiled(first[1], tuple(flags))}"] if first else []
    # linked in a step of its own: with the flags of a sanitizer the linker would add the sanitizer
    written = new_object()
    _run([cxx, *flags, *before, f"-I{HERE}", "-c", "-xc++", "-", "-o", str(written)], source)
    os.replace(
      linked(written, KERNELS if first else ("-lstdc++", *KERNELS)), path
    )  # other processes see all of it or nothing
  return path


def new_object() -> Path:
  """A name for an object file that no other has: a loaded library is known by its name."""
  return folder() / f"{os.getpid()}-{next(_numbers)}.o"


def linked(path: Path, libraries: Sequence[str] = KERNELS) -> Path:
  """The shared object of an object file, which goes. Raises Refused."""
  made = path.with_suffix(".so")
  _run([compiler() or "g++", "-shared", "-nodefaultlibs", str(path), "-o", str(made), *libraries], "")
  path.unlink()
  return made


def _run(command: Sequence[str], text: str) -> None:
  done = subprocess.run(command, input=text, capture_output=True, text=True)
  if done.returncode:
    raise Refused(done.stderr)
