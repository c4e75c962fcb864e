"""A model of Metal's objects, as far as tiny-runtime-metal sends them messages: `tiny_runtime_metal.messages.Messages`.

Each class answers the messages of one of Metal's, in Python; what a GPU would do, gpu_model.machine does, at `commit`.
Objects count their references, so that what is used after it was released, or never is, is found.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpu_model.machine import Buffer, Counts, Options, Sizes, Wrong, allocated, launch
from gpu_model.metal_source import Argument, Library
from gpu_model.toolchain import Refused
from tiny_runtime_metal.messages import SIGNATURES, Handle

MEMORY = 1 << 26
COMMITTED, COMPLETED, FAILED = 2, 4, 5
PAGE_FAULT = 3


class Object:
  """NSObject. Selector `a:b:` is the method `a_b_`."""

  def __init__(self, model: Model) -> None:
    self.model, self.references, self.handle = model, 1, model.next_handle()
    model.objects[self.handle] = self

  def retain(self) -> Object:
    self.references += 1
    return self

  def release(self) -> None:
    self.references -= 1
    if self.references == 0:
      del self.model.objects[self.handle]
      self.gone()

  def gone(self) -> None:
    """Nobody holds it any more."""

  def autoreleased(self) -> Object:
    """Held by the pool that is open."""
    if not self.model.pools:
      raise AssertionError(f"{type(self).__name__} would leak: no autorelease pool is open")
    self.model.pools[-1].append(self)
    return self

  def respondsToSelector_(self, selector: str) -> bool:
    return hasattr(self, selector.replace(":", "_"))


class Text(Object):
  """NSString; its class answers too."""

  def __init__(self, model: Model, text: str = "") -> None:
    super().__init__(model)
    self.text = text

  def UTF8String(self) -> str:
    return self.text

  def stringWithUTF8String_(self, text: str) -> Object:
    return Text(self.model, text).autoreleased()


class Error(Object):
  """NSError."""

  def __init__(self, model: Model, text: str, code: int = 0) -> None:
    super().__init__(model)
    self.text, self.number = text, code

  def localizedDescription(self) -> Object:
    return Text(self.model, self.text).autoreleased()

  def code(self) -> int:
    return self.number


class CompileOptions(Object):
  """MTLCompileOptions; its class answers `alloc`."""

  language, safe = 0, False

  def alloc(self) -> Object:
    return CompileOptions(self.model)

  def init(self) -> Object:
    return self

  def setLanguageVersion_(self, version: int) -> None:
    self.language = version

  def setFastMathEnabled_(self, enabled: bool) -> None:
    self.safe = not enabled


class NewCompileOptions(CompileOptions):
  """That of macOS 15."""

  def alloc(self) -> Object:
    return NewCompileOptions(self.model)

  def setMathMode_(self, mode: int) -> None:
    self.safe = mode == 0


class Gpu(Object):
  """MTLDevice."""

  def name(self) -> Object:
    return Text(self.model, "a model of a GPU").autoreleased()

  def supportsFamily_(self, family: int) -> bool:
    return family <= self.model.family and family // 1000 == self.model.family // 1000

  def recommendedMaxWorkingSetSize(self) -> int:
    return MEMORY

  def maxBufferLength(self) -> int:
    return MEMORY // 2

  def newCommandQueue(self) -> Object:
    return Queue(self.model)

  def newBufferWithLength_options_(self, length: int, options: int) -> Object | None:
    if length == 0 or options != 0 or length > self.model.free:
      return None
    return Bytes(self.model, length)

  def newLibraryWithSource_options_error_(self, source: Text, options: CompileOptions) -> tuple[Object | None, Any]:
    if not options.safe or options.language < (3 << 16):
      return None, Error(self.model, "fast math, or a language that is too old").autoreleased()
    try:
      return Compiled(self.model, Library(source.text)), None
    except Refused as error:
      return None, Error(self.model, str(error)).autoreleased()

  def newComputePipelineStateWithFunction_error_(self, function: Function) -> tuple[Object, None]:
    return Pipeline(self.model, function.library), None


class Compiled(Object):
  """MTLLibrary."""

  def __init__(self, model: Model, library: Library) -> None:
    super().__init__(model)
    self.library = library

  def newFunctionWithName_(self, name: Text) -> Object | None:
    return Function(self.model, self.library) if name.text == self.library.name else None


class Function(Compiled):
  """MTLFunction."""


class Pipeline(Compiled):
  """MTLComputePipelineState."""

  def gone(self) -> None:
    self.model.sizes.pop(self.handle, None)

  def maxTotalThreadsPerThreadgroup(self) -> int:
    return self.library.most_threads


class Bytes(Object):
  """MTLBuffer. Its contents end where a kernel's accesses have to."""

  def __init__(self, model: Model, length: int) -> None:
    super().__init__(model)
    self.length = length
    self.bytes = allocated(length)
    model.free -= length

  def gone(self) -> None:
    self.model.free += self.length

  def contents(self) -> int:
    return ctypes.addressof(self.bytes)

  def gpuAddress(self) -> int:
    return self.contents()


class Queue(Object):
  """MTLCommandQueue."""

  def commandBuffer(self) -> Object:
    return Commands(self.model).autoreleased()


class Commands(Object):
  """MTLCommandBuffer. It runs what is in it when it is committed."""

  def __init__(self, model: Model) -> None:
    super().__init__(model)
    self.state, self.failure, self.encoders = 0, "", list[Encoder]()
    self.began = self.ended = 0.0

  def computeCommandEncoder(self) -> Object:
    self.encoders.append(Encoder(self.model))
    return self.encoders[-1].autoreleased()

  def commit(self) -> None:
    assert all(encoder.ended for encoder in self.encoders), "a command buffer is committed with an open encoder"
    self.state, self.began = COMMITTED, time.perf_counter()
    try:
      for encoder in self.encoders:
        for run in encoder.launches:
          self.model.counts = run()
      self.state = COMPLETED
    except Wrong as error:
      self.state, self.failure = FAILED, str(error)
    self.ended = time.perf_counter()
    for encoder in self.encoders:
      encoder.let_go()

  def waitUntilCompleted(self) -> None:
    assert self.state >= COMMITTED, "a command buffer that was not committed is never completed"

  def status(self) -> int:
    return self.state

  def error(self) -> Object | None:
    return Error(self.model, self.failure, PAGE_FAULT).autoreleased() if self.state == FAILED else None

  def GPUStartTime(self) -> float:
    return self.began

  def GPUEndTime(self) -> float:
    return self.ended


class Encoder(Object):
  """MTLComputeCommandEncoder."""

  def __init__(self, model: Model) -> None:
    super().__init__(model)
    self.pipeline: Pipeline | None = None
    self.table: dict[int, tuple[Bytes, int]] = {}
    self.used: list[Buffer] = []
    """Memory that a kernel gets to by an address in another."""
    self.held: list[Object] = []
    self.launches: list[Any] = []
    self.ended = False

  def let_go(self) -> None:
    for held in self.held:
      held.release()

  def setComputePipelineState_(self, pipeline: Pipeline) -> None:
    self.pipeline = pipeline
    self.held.append(pipeline.retain())

  def setBuffer_offset_atIndex_(self, buffer: Bytes, offset: int, index: int) -> None:
    assert 0 <= index < 31 and 0 <= offset <= buffer.length, f"index {index}, offset {offset} of {buffer.length}"
    self.table[index] = (buffer, offset)
    self.held.append(buffer.retain())

  def setBytes_length_atIndex_(self, data: bytes, length: int, index: int) -> None:
    assert length == len(data) <= 4096, "setBytes takes up to 4096 bytes"
    buffer = Bytes(self.model, length)
    ctypes.memmove(buffer.bytes, data, length)
    self.table[index] = (buffer, 0)
    self.held.append(buffer)

  def dispatchThreadgroups_threadsPerThreadgroup_(self, groups: Sizes, threads: Sizes) -> None:
    assert self.pipeline is not None, "a dispatch without a pipeline"
    library = self.pipeline.library
    buffers = [self._bound(argument) for argument in library.arguments]
    options, used = self.model.options, list(self.used)
    self.launches.append(lambda: launch(library.call, buffers, groups, threads, options, others=used))

  def useResource_usage_(self, buffer: Bytes, usage: int) -> None:
    self.used.append(Buffer(buffer.contents(), buffer.length, f"resource {len(self.used)}", bool(usage & 2)))
    self.held.append(buffer.retain())

  def _bound(self, argument: Argument) -> Buffer:
    assert argument.index in self.table, f"nothing is bound at index {argument.index}"
    buffer, offset = self.table[argument.index]
    assert self.pipeline is not None
    size = self.model.sizes.get(self.pipeline.handle, {}).get(argument.name, buffer.length - offset)
    return Buffer(buffer.contents() + offset, size, argument.name, argument.writable)

  def endEncoding(self) -> None:
    self.ended = True


class Model:
  """Everything that Metal is to one process: `Messages` over objects that are Python's."""

  def __init__(self, family: int = 1009, system: tuple[int, int] = (14, 0), options: Options | None = None) -> None:
    self.family, self.system, self.options = family, system, options or Options()
    self.objects: dict[Handle, Object] = {}
    self.last, self.free = 0, MEMORY
    self.pools: list[list[Object]] = []
    self.counts = Counts()
    """Of the last launch."""
    self.sizes: dict[Handle, dict[str, int]] = {}
    """Bytes of a pipeline's buffers by name, where a launch is to see less than what is left of the memory."""
    options_class = NewCompileOptions if system >= (15, 0) else CompileOptions
    self.classes: dict[str, Object] = {"NSString": Text(self), "MTLCompileOptions": options_class(self)}
    self.lasting = len(self.objects)

  def next_handle(self) -> Handle:
    """An address that no other object had."""
    self.last += 16
    return self.last

  @property
  def held(self) -> list[str]:
    """What was not released yet."""
    return [type(o).__name__ for h, o in self.objects.items() if o not in self.classes.values()]

  def class_named(self, name: str) -> Handle:
    """See `Messages`."""
    return self.classes[name].handle

  def send(self, receiver: Handle, selector: str, *arguments: Any) -> Any:
    """See `Messages`."""
    if receiver == 0:
      return 0
    signature = SIGNATURES[selector]
    kinds = [kind for kind in signature.arguments if kind != "error"]
    assert selector.count(":") == len(signature.arguments) and len(arguments) == len(kinds), f"{selector} {arguments}"
    assert receiver in self.objects, f"{selector} is sent to an object that is gone"
    given = [self.objects[a] if kind == "object" and a else a for kind, a in zip(kinds, arguments)]
    result = getattr(self.objects[receiver], selector.replace(":", "_"))(*given)
    if isinstance(result, tuple):
      return tuple(part.handle if part is not None else 0 for part in result)
    if signature.result == "object":
      return result.handle if result is not None else 0
    return result

  def devices(self) -> list[Handle]:
    """See `Messages`."""
    return [Gpu(self).handle]

  @contextmanager
  def pool(self) -> Iterator[None]:
    """See `Messages`."""
    self.pools.append([])
    try:
      yield
    finally:
      for held in self.pools.pop():
        held.release()
