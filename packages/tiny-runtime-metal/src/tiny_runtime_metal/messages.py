"""The messages that this package sends to Metal's objects, and how: the one seam between it and macOS.

An object is a number, its address; 0 is nil. `Messages` is what the rest of the package needs. On a Mac it is
`objc.Runtime`; tests put a model of the framework in its place (`integration/model`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

Handle = int
Sizes = tuple[int, int, int]


class Signature(NamedTuple):
  """Types of a message: what comes back, and what is passed.

  `object`, `selector`, `pointer` (an address), `integer` (NSUInteger, NSInteger and enumerations), `flag` (BOOL),
  `seconds` (a double), `text` (UTF-8), `bytes` (copied by the receiver), `size` (MTLSize), `nothing`. An `error` is an
  NSError** behind the other arguments, which the caller does not pass: `send` then gives (result, NSError or 0).
  """

  result: str
  arguments: tuple[str, ...] = ()


def _signature(text: str) -> Signature:
  result, _, arguments = text.partition(" <- ")
  return Signature(result, tuple(arguments.split()))


# by receiver, in the order of Apple's documentation; names that begin with new or alloc give an object that the caller
# has to release, the others one that lives as long as the pool
SIGNATURES: dict[str, Signature] = {
  selector: _signature(text)
  for selector, text in {
    # NSObject
    "alloc": "object",
    "init": "object",
    "retain": "object",
    "release": "nothing",
    "respondsToSelector:": "flag <- selector",
    # NSArray, NSString, NSError
    "count": "integer",
    "objectAtIndex:": "object <- integer",
    "stringWithUTF8String:": "object <- text",
    "UTF8String": "text",
    "localizedDescription": "object",
    "code": "integer",
    # MTLDevice
    "name": "object",
    "supportsFamily:": "flag <- integer",
    "recommendedMaxWorkingSetSize": "integer",
    "maxBufferLength": "integer",
    "newCommandQueue": "object",
    "newBufferWithLength:options:": "object <- integer integer",
    "newLibraryWithSource:options:error:": "object <- object object error",
    "newComputePipelineStateWithFunction:error:": "object <- object error",
    # MTLCompileOptions
    "setLanguageVersion:": "nothing <- integer",
    "setMathMode:": "nothing <- integer",
    "setFastMathEnabled:": "nothing <- flag",
    # MTLLibrary
    "newFunctionWithName:": "object <- object",
    # MTLComputePipelineState
    "maxTotalThreadsPerThreadgroup": "integer",
    # MTLBuffer
    "contents": "pointer",
    "gpuAddress": "integer",
    # MTLCommandQueue, MTLCommandBuffer
    "commandBuffer": "object",
    "computeCommandEncoder": "object",
    "commit": "nothing",
    "waitUntilCompleted": "nothing",
    "status": "integer",
    "error": "object",
    "GPUStartTime": "seconds",
    "GPUEndTime": "seconds",
    # MTLComputeCommandEncoder
    "setComputePipelineState:": "nothing <- object",
    "setBuffer:offset:atIndex:": "nothing <- object integer integer",
    "setBytes:length:atIndex:": "nothing <- bytes integer integer",
    "useResource:usage:": "nothing <- object integer",
    "dispatchThreadgroups:threadsPerThreadgroup:": "nothing <- size size",
    "endEncoding": "nothing",
  }.items()
}


class Messages(Protocol):
  """What this package needs of the Objective-C runtime and of Metal.framework."""

  @property
  def system(self) -> tuple[int, int]:
    """The version of macOS: (14, 2)."""

  def class_named(self, name: str) -> Handle:
    """A class, which is an object too."""

  def send(self, receiver: Handle, selector: str, *arguments: Any) -> Any:
    """Send a message of `SIGNATURES`. One to nil does nothing and gives 0."""

  def devices(self) -> list[Handle]:
    """The function `MTLCopyAllDevices`: every GPU, each to be released."""

  def pool(self) -> AbstractContextManager[None]:
    """An autorelease pool: what messages inside gave without `new` or `alloc` is let go at its end."""


def text_of(messages: Messages, string: Handle) -> str:
  """The text of an NSString; nil has none."""
  return str(messages.send(string, "UTF8String")) if string else ""
