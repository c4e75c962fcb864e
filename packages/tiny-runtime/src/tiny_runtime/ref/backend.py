"""The backend object that the entry point names. Start reading here when you write your own.

Copy this folder, rename it, and replace one method after the other:

1. `backend.py` says which devices there are. `probe` must work without your driver, and say what is missing.
2. `compiler.py` turns a kernel UOp into a `Binary`. Here the "code" is the kernel's text; yours will call
   `tiny_codegen.compile_kernel` with a renderer and then your assembler.
3. `device.py` has the ten methods that need the hardware.

Then run `pytest --pyargs tiny_runtime.conformance --backend YOURS`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime.contract import Compiler, Device
from tiny_runtime.errors import Unavailable
from tiny_runtime.ref.compiler import RefCompiler
from tiny_runtime.ref.device import ARCH, RefDevice

DEVICES = 8
"""How many devices there are. Yours has as many as the driver finds."""


class RefBackend:
  """Several devices, always there."""

  # numbers of the plugin's own, not imported from the contract: they say which version it was written for
  api = (1, 9)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """The arch of each device."""
    return (ARCH,) * DEVICES

  def open(self, index: int) -> Device:
    """Open one; every call gives another device with its own memory."""
    if not 0 <= index < DEVICES:
      raise Unavailable(f"REF:{index} does not exist: there are {DEVICES}, numbered from 0", "Use REF")
    return RefDevice()

  def compiler(self, arch: str) -> Compiler:
    """The compiler for `arch`, which is always "python"."""
    if arch != ARCH:
      raise ValueError(f"unknown arch {arch!r} for REF, expected {ARCH!r}")
    return RefCompiler()


BACKEND = RefBackend()
"""What the entry point names."""
