"""`Messages` on a Mac: the Objective-C runtime and Metal.framework, through ctypes.

Not tried on a Mac yet. The types of every call come from `messages.SIGNATURES`; `objc_msgSend` is called as a function
of just these, which arm64 needs (Apple, "Addressing architectural differences in your macOS code").
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from tiny_runtime_metal.messages import SIGNATURES, Handle, Signature

OBJC = "/usr/lib/libobjc.A.dylib"
METAL = "/System/Library/Frameworks/Metal.framework/Metal"
GRAPHICS = "/System/Library/Frameworks/CoreGraphics.framework/CoreGraphics"
"""Metal lists the GPUs of a process without windows only if this is loaded (Apple, "MTLCreateSystemDefaultDevice")."""


class Size(ctypes.Structure):
  """MTLSize."""

  _fields_ = [("width", ctypes.c_ulong), ("height", ctypes.c_ulong), ("depth", ctypes.c_ulong)]


TYPES: dict[str, Any] = {
  "object": ctypes.c_void_p,
  "selector": ctypes.c_void_p,
  "pointer": ctypes.c_void_p,
  "error": ctypes.c_void_p,
  "integer": ctypes.c_ulong,
  "flag": ctypes.c_bool,
  "seconds": ctypes.c_double,
  "text": ctypes.c_char_p,
  "bytes": ctypes.c_char_p,
  "size": Size,
  "nothing": None,
}


def prototype(signature: Signature) -> Any:
  """The C type of `objc_msgSend` for a message."""
  return ctypes.CFUNCTYPE(
    TYPES[signature.result], ctypes.c_void_p, ctypes.c_void_p, *(TYPES[kind] for kind in signature.arguments)
  )


class Runtime:
  """The libraries of this Mac. Raises OSError where they cannot be loaded."""

  def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
    load(GRAPHICS)
    self.objc, self.metal = load(OBJC), load(METAL)
    for name in ("objc_getClass", "sel_registerName"):
      function = getattr(self.objc, name)
      function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    self.objc.objc_autoreleasePoolPush.restype = ctypes.c_void_p
    self.objc.objc_autoreleasePoolPop.argtypes = [ctypes.c_void_p]
    self.metal.MTLCopyAllDevices.restype = ctypes.c_void_p
    self.address = ctypes.cast(self.objc.objc_msgSend, ctypes.c_void_p).value
    self.functions: dict[str, tuple[int, Any]] = {}

  @cached_property
  def system(self) -> tuple[int, int]:
    """See `Messages`."""
    major, minor = (*platform.mac_ver()[0].split("."), "0", "0")[:2]
    return int(major or 0), int(minor or 0)

  def class_named(self, name: str) -> Handle:
    """See `Messages`."""
    return int(self.objc.objc_getClass(name.encode()) or 0)

  def selector(self, name: str) -> int:
    """The address that stands for a selector."""
    return int(self.objc.sel_registerName(name.encode()))

  def send(self, receiver: Handle, selector: str, *arguments: Any) -> Any:
    """See `Messages`."""
    if selector not in self.functions:
      self.functions[selector] = self.selector(selector), prototype(SIGNATURES[selector])(self.address)
    number, function = self.functions[selector]
    result, kinds = SIGNATURES[selector]
    passed = [self._passed(kind, value) for kind, value in zip(kinds, arguments)]
    if kinds[-1:] != ("error",):
      return _given(result, function(receiver, number, *passed))
    error = ctypes.c_void_p(0)
    found = function(receiver, number, *passed, ctypes.addressof(error))
    return _given(result, found), error.value or 0

  def _passed(self, kind: str, value: Any) -> Any:
    if kind == "selector":
      return self.selector(value)
    if kind == "size":
      return Size(*value)
    return value.encode() if kind == "text" else value

  def devices(self) -> list[Handle]:
    """See `Messages`."""
    array = int(self.metal.MTLCopyAllDevices() or 0)
    found = [self.send(self.send(array, "objectAtIndex:", n), "retain") for n in range(self.send(array, "count"))]
    self.send(array, "release")
    return found

  @contextmanager
  def pool(self) -> Iterator[None]:
    """See `Messages`."""
    token = self.objc.objc_autoreleasePoolPush()
    try:
      yield
    finally:
      self.objc.objc_autoreleasePoolPop(token)


def _given(kind: str, value: Any) -> Any:
  if kind == "text":
    return (value or b"").decode()
  return value or 0 if kind in ("object", "pointer") else value
