"""The backend object that the entry point names. Importing it needs neither a Mac nor a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from tiny_runtime import Compiler, Unavailable
from tiny_runtime.contract import Device
from tiny_runtime_metal.arch import FAMILIES, Arch
from tiny_runtime_metal.messages import Handle, Messages, text_of

LANGUAGES = ((14, (3, 1)), (13, (3, 0)))
"""The first version of macOS with each version of the shading language, newest first; older systems are refused."""
ELSEWHERE = (
  "Run on a Mac with Apple silicon, or use another device: DEVICE=CPU after pip install tiny-runtime-cpu. Kernels can "
  "be compiled for a Mac here: tiny_runtime_metal.BACKEND.compiler('apple9')"
)


def this_mac() -> Messages | Unavailable:
  """The Objective-C runtime with Metal, or why there is none."""
  if sys.platform != "darwin":
    return Unavailable(f"Metal is a part of macOS, and this system is {sys.platform}", ELSEWHERE)
  from tiny_runtime_metal.objc import Runtime

  try:
    return Runtime()
  except OSError as error:
    return Unavailable(f"Metal.framework cannot be loaded: {error}", "Use macOS 13 or later")


class MetalBackend:
  """Every GPU that Metal finds and that is of a family in the table."""

  api = (1, 9)
  ir = (1, 1)

  def __init__(self, connect: Callable[[], Messages | Unavailable] = this_mac) -> None:
    self.connect = connect

  def probe(self) -> Sequence[str] | Unavailable:
    """The arch of each GPU; Unavailable where Metal is missing or finds none that it can use."""
    messages = self.connect()
    if isinstance(messages, Unavailable):
      return messages
    found = self._devices(messages)
    if isinstance(found, Unavailable):
      return found
    for handle, _ in found:
      messages.send(handle, "release")
    return [str(arch) for _, arch in found]

  def open(self, index: int) -> Device:
    """Open a GPU. Raises Unavailable where there is none of this number."""
    from tiny_runtime_metal.device import MetalDevice

    return MetalDevice(*self.find(index), index)

  def find(self, index: int) -> tuple[Messages, Handle, Arch]:
    """A GPU by number, which the caller releases. Raises Unavailable."""
    messages = self.connect()
    if isinstance(messages, Unavailable):
      raise messages
    found = self._devices(messages)
    if isinstance(found, Unavailable):
      raise found
    for place, (handle, _) in enumerate(found):
      if place != index:
        messages.send(handle, "release")
    if not 0 <= index < len(found):
      raise Unavailable(f"METAL:{index} does not exist: there are {len(found)}, numbered from 0", "Use METAL")
    return messages, *found[index]

  def compiler(self, arch: str) -> Compiler:
    """A compiler for what `probe` lists, or for any family in `FAMILIES`."""
    from tiny_runtime_metal.compiler import MetalCompiler

    return MetalCompiler(Arch.parse(arch))

  def _devices(self, messages: Messages) -> list[tuple[Handle, Arch]] | Unavailable:
    """Each usable GPU with its arch; the caller releases them."""
    language = next((language for first, language in LANGUAGES if messages.system[0] >= first), None)
    if language is None:
      return Unavailable(f"this is macOS {messages.system[0]}.{messages.system[1]}", "Use macOS 13 or later")
    usable, others = [], []
    with messages.pool():
      for handle in messages.devices():
        name = family_of(messages, handle)
        if name is not None:
          usable.append((handle, Arch.parse(f"{name} metal{language[0]}.{language[1]}")))
          continue
        others.append(text_of(messages, messages.send(handle, "name")))
        messages.send(handle, "release")
    if usable:
      return usable
    what = f"Metal finds {', '.join(others)}, of no family that is supported" if others else "Metal finds no GPU"
    return Unavailable(f"{what} ({', '.join(FAMILIES)})", ELSEWHERE)


def family_of(messages: Messages, device: Handle) -> str | None:
  """The newest family that a GPU is of; None for one that is in no family of the table."""
  return next((n for n, f in FAMILIES.items() if messages.send(device, "supportsFamily:", f.number)), None)


BACKEND = MetalBackend()
"""What the entry point names."""
