"""Exact remainders of floats in machine code: by LLVM, optimised and not, and by a C compiler."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_codegen import CRenderer, compile_kernel, function_name
from tiny_sched import schedule
from tiny_tensor import Context, Tensor
from tiny_uop import Ops

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
Arrays = tuple[Any, Any]


def operands(dtype: str, count: int) -> Arrays:
  """Numbers of any bits, and quotients of all sizes; more than vectors and a rest."""
  rng = np.random.default_rng(3)
  kind = f"u{np.dtype(dtype).itemsize}"
  a, b = (np.frombuffer(rng.bytes(count * np.dtype(dtype).itemsize), kind).view(dtype) for _ in range(2))
  near = [np.ldexp(rng.standard_normal(count), rng.integers(-30, 12, count)).astype(dtype) for _ in range(2)]
  with np.errstate(all="ignore"):
    times = (near[1] * rng.integers(1, 1 << 20, count)).astype(dtype)
  return np.concatenate([a, near[0], times]), np.concatenate([b, near[1], near[1]])


def results(a: Tensor, b: Tensor) -> list[Tensor]:
  return [a.fmod(b), a % b, a // b]


def check(found: list[Any], a: Any, b: Any) -> None:
  with np.errstate(all="ignore"):
    expected = (np.fmod(a, b), np.remainder(a, b), np.floor_divide(a, b))
  kind = f"u{a.dtype.itemsize}"
  for name, got, wanted in zip(("fmod", "%", "//"), found, expected, strict=True):
    wrong = np.nonzero((got.view(kind) != wanted.view(kind)) & ~(np.isnan(got) & np.isnan(wanted)))[0]
    assert not wrong.size, [f"{name} of {a[i]!r}, {b[i]!r} is {wanted[i]!r}, got {got[i]!r}" for i in wrong[:3]]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("noopt", [0, 1])
def test_on_the_cpu(dtype: str, noopt: int) -> None:
  a, b = operands(dtype, 3333)
  with Context(DEVICE="CPU", NOOPT=noopt):
    found = results(Tensor(a), Tensor(b))
    found[0].realize(*found[1:])
    check([f.numpy() for f in found], a, b)


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_in_c(dtype: str, tmp_path: Path) -> None:
  assert COMPILER
  a, b = operands(dtype, 1000)
  with Context(DEVICE="CPU"):
    x, y = Tensor(a).realize(), Tensor(b).realize()
    found = []
    for number, t in enumerate(results(x, y)):
      (call,) = [c for c in schedule(t.graph()).src if c.src[0].op is Ops.SINK]
      program = compile_kernel(call.src[0], CRenderer(), ())
      text, library = tmp_path / f"{number}.c", tmp_path / f"{number}.so"
      text.write_text(str(program.src[2].arg))
      flags = ["-O2", "-std=gnu99", "-fno-math-errno", "-ffp-contract=off", "-shared", "-fPIC", "-Wl,-z,defs"]
      subprocess.run([COMPILER, *flags, str(text), "-o", str(library)], check=True)
      out = np.zeros_like(a)
      held = {x.uop.base: a, y.uop.base: b}
      arrays = [held.get(buffer, out) for buffer in call.src[1:]]
      buffers = (ctypes.c_void_p * 3)(*(v.ctypes.data for v in arrays))
      function = ctypes.CDLL(str(library))[function_name(call.src[0].arg.name)]
      function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
      function(ctypes.addressof(buffers), None, 0, 1)
      found.append(out)
  check(found, a, b)
