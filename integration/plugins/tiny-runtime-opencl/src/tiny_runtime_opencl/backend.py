"""The backend object that the entry point names. Importing it needs neither a driver nor pyopencl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tiny_runtime import Compiler, Unavailable
from tiny_runtime_opencl.arch import Arch
from tiny_runtime_opencl.compiler import OpenCLCompiler

if TYPE_CHECKING:
  from tiny_runtime.contract import Device

INSTALL_DRIVER = (
  "Install the OpenCL driver of your GPU, or one for the processor: pip install 'tiny-runtime-opencl[pocl]', or "
  "Debian's pocl-opencl-icd. `clinfo` lists those that are found"
)
NEWER_DRIVER = "Install a driver that knows this device: a newer PoCL, from Debian or conda-forge, or that of its maker"


class OpenCLBackend:
  """Every OpenCL device whose driver can compile for it: GPUs first, in the order of platforms."""

  api = (1, 5)
  ir = (1, 1)

  def probe(self) -> Sequence[str] | Unavailable:
    """The arch of each device; Unavailable where pyopencl cannot be imported or finds no driver or no device."""
    found = self._devices()
    if isinstance(found, Unavailable):
      return found
    from tiny_runtime_opencl.machine import arch_of

    return [str(arch_of(device)) for device in found]

  def open(self, index: int) -> Device:
    """Open a device. Raises Unavailable where there is none of this number."""
    found = self._devices()
    if isinstance(found, Unavailable):
      raise found
    if not 0 <= index < len(found):
      raise Unavailable(f"OPENCL:{index} does not exist: there are {len(found)}, numbered from 0", "Use OPENCL")
    from tiny_runtime_opencl.device import OpenCLDevice

    return OpenCLDevice(found[index], index)

  def compiler(self, arch: str) -> Compiler:
    """A compiler for what `probe` lists, or for a device that is elsewhere."""
    return OpenCLCompiler(Arch.parse(arch))

  def _devices(self) -> list[Any] | Unavailable:
    try:
      from tiny_runtime_opencl.machine import find_devices, refusal
    except ImportError as error:
      return Unavailable(f"pyopencl cannot be imported: {error}", "pip install --force-reinstall pyopencl")
    found = find_devices()
    refusals = [refusal(device) for device in found]
    if usable := [device for device, said in zip(found, refusals) if not said]:
      return usable
    if not found:
      return Unavailable("there is no OpenCL driver, or it finds no device", INSTALL_DRIVER)
    of = f"{found[0].platform.name} {found[0].platform.version}"
    return Unavailable(f"the compiler of {found[0].name}, {of}, builds no kernel: {refusals[0]}", NEWER_DRIVER)


BACKEND = OpenCLBackend()
