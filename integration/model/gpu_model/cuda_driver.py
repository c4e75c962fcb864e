"""A model of NVIDIA's driver library: what tiny-runtime-nv calls of libcuda, after the manual of the driver API.

The functions have the C types of cuda.h and are called through ctypes, as the library's are. What is put into a stream
happens when it is waited for, and not before, so that whoever does not wait sees that. Misuse (handles that are no
longer, memory that was freed, no context) is an error with its own text in `Model.misuse`, which tests look at.
"""

from __future__ import annotations

import ctypes
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from gpu_model.cuda_objects import (
  Call,
  CallGraph,
  Event,
  Misuse,
  Status,
  Stream,
  copy_of,
  refused,
  store,
  void,
)
from gpu_model.machine import Buffer, Options, Wrong, launch
from gpu_model.ptx import MOST_SHARED, Module
from gpu_model.toolchain import Refused
from tiny_runtime_nv.driver import FUNCTIONS, KernelNode

MEMORY = 64 << 20
INVALID, NO_MEMORY, NO_DEVICE, BAD_PTX, BAD_HANDLE, NOT_FOUND, ILLEGAL, UNKNOWN = 1, 2, 101, 218, 400, 500, 700, 999
NAMES = {
  INVALID: "CUDA_ERROR_INVALID_VALUE", NO_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY", BAD_PTX: "CUDA_ERROR_INVALID_PTX",
  ILLEGAL: "CUDA_ERROR_ILLEGAL_ADDRESS", UNKNOWN: "CUDA_ERROR_UNKNOWN", BAD_HANDLE: "CUDA_ERROR_INVALID_HANDLE",
}  # fmt: skip
LARGEST_GRID, LARGEST_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)


class Model:
  """A machine with one GPU, of compute capability 9.0."""

  def __init__(self, memory: int = MEMORY, version: int = 13000, options: Options | None = None) -> None:
    self.memory, self.version, self.options = memory, version, options
    self.misuse: list[str] = []
    self.lock = threading.RLock()
    self.current = threading.local()
    self.initialised, self.retained, self.broken = False, 0, 0
    self.calls: list[str] = []
    self.texts: dict[str, ctypes.Array[Any]] = {}
    self.wrong = ""
    self.reset()

  def reset(self) -> None:
    """All that a context holds is gone."""
    self.handles: dict[int, Any] = {}
    self.allocations: dict[int, ctypes.Array[Any]] = {}
    self.pinned: dict[int, ctypes.Array[Any]] = {}
    self.broken = 0

  @property
  def used(self) -> int:
    """Bytes that are allocated."""
    return sum(map(len, self.allocations.values()))

  def __getattr__(self, name: str) -> Any:
    """A function of the library, with C types; AttributeError for one that is not in it."""
    method = getattr(type(self), f"do_{name}", None)
    if method is None or name not in FUNCTIONS:
      raise AttributeError(name)

    def call(*arguments: Any) -> int:
      with self.lock:
        self.calls.append(name)
        try:
          if self.broken and name not in ("cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRelease_v2"):
            if not name.startswith("cuGetError"):
              return self.broken
          if not self.initialised and name not in ("cuInit", "cuDriverGetVersion"):
            raise Misuse(f"{name} comes before cuInit")
          method(self, *arguments)
          return 0
        except Status as status:
          return int(status.args[0])
        except BaseException:
          self.misuse.append(f"{name}: {traceback.format_exc(limit=-3)}")
          return UNKNOWN

    function = ctypes.CFUNCTYPE(ctypes.c_int, *FUNCTIONS[name])(call)
    self.__dict__[name] = function
    return function

  # *** what the functions share ***

  def new(self, place: int, thing: Any) -> None:
    """Give a handle for something."""
    handle = 0x1000 + 16 * len(self.handles) + (id(thing) & 0xFFFF0000)
    while handle in self.handles:
      handle += 16
    self.handles[handle] = thing
    store(place, ctypes.c_void_p, handle)

  def thing(self, handle: int | None, kind: type[Any]) -> Any:
    """What a handle stands for."""
    found = self.handles.get(handle or 0)
    if not isinstance(found, kind):
      raise Misuse(f"{handle} is no handle of a {kind.__name__}, or it was destroyed")
    if not getattr(self.current, "context", None):
      raise Misuse("no context is current in this thread")
    return found

  def bytes_at(self, address: int, size: int) -> int:
    """An address on the device, with this many bytes behind it; else the context is broken."""
    for begin, memory in self.allocations.items():
      if begin <= address and address + size <= begin + len(memory):
        return address
    self.broken = ILLEGAL
    raise Status(ILLEGAL)

  def host_at(self, address: int | None, size: int) -> int:
    """An address of pinned memory."""
    for begin, memory in self.pinned.items():
      if address is not None and begin <= address and address + size <= begin + len(memory):
        return address
    raise Misuse(f"an asynchronous copy of {size} bytes with memory of the host that is not pinned")

  def enqueue(self, stream: Stream, work: Callable[[], None]) -> None:
    def guarded() -> None:
      if not self.broken:
        work()

    stream.work.append(guarded)

  def finish(self, stream: Stream, until: Event | None = None) -> None:
    stream.run(until)
    if self.broken:
      raise Status(self.broken)

  def execute(self, call: Call) -> None:
    """Run a kernel, or copy."""
    if not call.enabled:
      return
    if call.module is None:
      target, source, size = call.copy
      if abs(target - source) < size:
        raise Misuse("a copy whose source and target overlap")
      self.bytes_at(target, size), self.bytes_at(source, size)
      ctypes.memmove(target, source, size)
      return
    if call.module not in self.handles.values():
      raise Misuse(f"kernel {call.module.signature.name} runs after its module was unloaded")
    words = (ctypes.c_uint64 * max(1, len(call.words)))(*call.words)
    buffers = [Buffer(ctypes.addressof(words), ctypes.sizeof(words), "the parameters", False)]
    buffers += [Buffer(begin, len(memory), f"memory {begin:#x}") for begin, memory in self.allocations.items()]
    try:
      launch(call.module.call(call.shared), buffers, call.grid, call.block, self.options)
    except Wrong as error:
      self.wrong = str(error)
      self.broken = ILLEGAL

  # *** the library ***

  def do_cuInit(self, flags: int) -> None:
    self.initialised = True

  def do_cuDriverGetVersion(self, place: int) -> None:
    store(place, ctypes.c_int, self.version)

  def do_cuGetErrorName(self, status: int, place: int) -> None:
    if status not in NAMES:
      raise Status(INVALID)
    self._text(NAMES[status], place)

  def _text(self, text: str, place: int) -> None:
    kept = self.texts.setdefault(text, ctypes.create_string_buffer(text.encode()))
    store(place, ctypes.c_void_p, ctypes.addressof(kept))

  def do_cuGetErrorString(self, status: int, place: int) -> None:
    """In words; of an illegal access, what the machine saw."""
    texts = {ILLEGAL: self.wrong, UNKNOWN: self.misuse[-1] if self.misuse else ""}
    self._text(texts.get(status) or "in words", place)

  def do_cuDeviceGet(self, place: int, ordinal: int) -> None:
    if ordinal:
      raise Status(NO_DEVICE)
    store(place, ctypes.c_int, 0)

  def do_cuDeviceGetAttribute(self, place: int, attribute: int, device: int) -> None:
    store(place, ctypes.c_int, {75: 9, 76: 0, 115: 1}[attribute])

  def do_cuDeviceTotalMem_v2(self, place: int, device: int) -> None:
    store(place, ctypes.c_size_t, self.memory)

  def do_cuDevicePrimaryCtxRetain(self, place: int, device: int) -> None:
    self.retained += 1
    store(place, ctypes.c_void_p, 0xC0)

  def do_cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
    if not self.retained:
      raise Misuse("the primary context is released more often than it was retained")
    self.retained -= 1
    if not self.retained:
      if self.allocations or self.handles or self.pinned:
        kinds = sorted({type(thing).__name__ for thing in self.handles.values()})
        self.misuse.append(f"left behind: {len(self.allocations)} allocations, {kinds}, {len(self.pinned)} pinned")
      self.reset()

  def do_cuDevicePrimaryCtxReset_v2(self, device: int) -> None:
    self.reset()

  def do_cuCtxSetCurrent(self, context: int | None) -> None:
    self.current.context = context

  def do_cuMemGetInfo_v2(self, free: int, total: int) -> None:
    store(free, ctypes.c_size_t, self.memory - self.used)
    store(total, ctypes.c_size_t, self.memory)

  def do_cuDeviceGetDefaultMemPool(self, place: int, device: int) -> None:
    store(place, ctypes.c_void_p, 0xB0)

  def do_cuMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None:
    if (pool, attribute) != (0xB0, 4):
      raise Misuse("another pool, or attribute")

  def do_cuMemPoolTrimTo(self, pool: int, size: int) -> None:
    if pool != 0xB0:
      raise Misuse("another pool")

  def do_cuMemAllocAsync(self, place: int, size: int, stream: int) -> None:
    self.thing(stream, Stream)
    if size == 0:
      raise Status(INVALID)
    if self.used + size > self.memory:
      raise Status(NO_MEMORY)
    memory = ctypes.create_string_buffer(size + 256)
    ctypes.memset(memory, 0xA5, size + 256)
    begin = -(-ctypes.addressof(memory) // 256) * 256
    view = (ctypes.c_char * size).from_buffer(memory, begin - ctypes.addressof(memory))
    self.allocations[begin] = view
    store(place, ctypes.c_uint64, begin)

  def do_cuMemFreeAsync(self, address: int, stream: int) -> None:
    if address not in self.allocations:
      raise Misuse(f"{address:#x} is no allocation")
    self.enqueue(self.thing(stream, Stream), lambda: void(self.allocations.pop(address)))

  def do_cuMemHostAlloc(self, place: int, size: int, flags: int) -> None:
    memory = ctypes.create_string_buffer(size)
    self.pinned[ctypes.addressof(memory)] = memory
    store(place, ctypes.c_void_p, ctypes.addressof(memory))

  def do_cuMemFreeHost(self, address: int) -> None:
    del self.pinned[address]

  def do_cuMemcpyHtoDAsync_v2(self, target: int, source: int, size: int, stream: int) -> None:
    self.host_at(source, size)
    self.enqueue(self.thing(stream, Stream), lambda: void(ctypes.memmove(self.bytes_at(target, size), source, size)))

  def do_cuMemcpyDtoHAsync_v2(self, target: int, source: int, size: int, stream: int) -> None:
    self.host_at(target, size)
    self.enqueue(self.thing(stream, Stream), lambda: void(ctypes.memmove(target, self.bytes_at(source, size), size)))

  def do_cuStreamCreate(self, place: int, flags: int) -> None:
    self.new(place, Stream())

  def do_cuStreamSynchronize(self, stream: int) -> None:
    self.finish(self.thing(stream, Stream))

  def do_cuStreamDestroy_v2(self, stream: int) -> None:
    self.thing(stream, Stream).run()
    del self.handles[stream]

  def do_cuEventCreate(self, place: int, flags: int) -> None:
    self.new(place, Event())

  def do_cuEventRecord(self, event: int, stream: int) -> None:
    recorded, queue = self.thing(event, Event), self.thing(stream, Stream)

    def reached() -> None:
      recorded.pending -= 1
      recorded.at = time.perf_counter()

    recorded.pending += 1
    recorded.stream = queue
    queue.work.append(reached)

  def do_cuEventSynchronize(self, event: int) -> None:
    found = self.thing(event, Event)
    if found.stream is not None:
      self.finish(found.stream, found)

  def do_cuEventElapsedTime(self, place: int, first: int, last: int) -> None:
    times = [self.thing(event, Event) for event in (first, last)]
    if any(event.pending or event.at is None for event in times):
      raise Misuse("time between events that were not reached")
    store(place, ctypes.c_float, (times[1].at - times[0].at) * 1e3)

  def do_cuEventDestroy_v2(self, event: int) -> None:
    self.thing(event, Event)
    del self.handles[event]

  def do_cuModuleLoadDataEx(self, place: int, image: int, count: int, options: int, values: int) -> None:
    try:
      module = Module(ctypes.string_at(image).decode())
      if module.target not in ("sm_90a", "sm_90", "sm_89", "sm_86", "sm_80", "sm_75"):
        raise Refused(f"{module.target} is for a later GPU")
    except Refused as error:
      refused(error, count, options, values)
      raise Status(BAD_PTX) from error
    self.new(place, module)

  def do_cuModuleGetFunction(self, place: int, module: int, name: bytes) -> None:
    found = self.thing(module, Module)
    if found.signature.name != name.decode():
      raise Status(NOT_FOUND)
    store(place, ctypes.c_void_p, module)

  def do_cuModuleUnload(self, module: int) -> None:
    self.thing(module, Module)
    del self.handles[module]

  def do_cuFuncGetAttribute(self, place: int, attribute: int, function: int) -> None:
    self.thing(function, Module)
    store(place, ctypes.c_int, {0: 1024, 4: 32}[attribute])

  def do_cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
    module = self.thing(function, Module)
    if attribute != 8 or not 0 <= value <= MOST_SHARED:
      raise Status(INVALID)
    module.most_at_launch = value

  def _kernel(self, function: int, grid: Any, block: Any, shared: int, parameters: int) -> Call:
    module = self.thing(function, Module)
    too_large = [size > most for size, most in zip((*grid, *block), (*LARGEST_GRID, *LARGEST_BLOCK))]
    wrong_block = module.signature.threads not in (None, tuple(block))
    if shared > module.most_at_launch:
      raise Status(INVALID)
    if 0 in grid or 0 in block or any(too_large) or block[0] * block[1] * block[2] > 1024 or wrong_block:
      raise Status(INVALID)
    count = module.signature.parameters
    places = (ctypes.c_void_p * count).from_address(parameters)
    words = [ctypes.c_uint64.from_address(place).value for place in places if place]
    return Call(module, words, tuple(grid), tuple(block), shared)

  def do_cuLaunchKernel(self, function: int, *rest: Any) -> None:
    grid, block, (shared, stream, parameters, _) = rest[:3], rest[3:6], rest[6:]
    call = self._kernel(function, grid, block, shared, parameters)
    self.enqueue(self.thing(stream, Stream), lambda: self.execute(call))

  def do_cuGraphCreate(self, place: int, flags: int) -> None:
    self.new(place, CallGraph())

  def do_cuGraphDestroy(self, graph: int) -> None:
    self.thing(graph, CallGraph)
    del self.handles[graph]

  def _node(self, place: int, graph: int, before: int | None, count: int, call: Call) -> None:
    nodes = self.thing(graph, CallGraph).nodes
    given = [] if not count else list((ctypes.c_void_p * count).from_address(before or 0))
    if given != list(nodes)[-1:]:
      raise Misuse(f"a node that does not wait for the one before it: it waits for {given} of {list(nodes)}")
    handle = 0x7000 + 16 * len(nodes)
    nodes[handle] = call
    store(place, ctypes.c_void_p, handle)

  def do_cuGraphAddKernelNode_v2(self, place: int, graph: int, before: int, count: int, node: int) -> None:
    self._node(place, graph, before, count, self._kernel_of(node))

  def _kernel_of(self, place: int) -> Call:
    node = KernelNode.from_address(place)
    grid, block = (node.gridDimX, node.gridDimY, node.gridDimZ), (node.blockDimX, node.blockDimY, node.blockDimZ)
    return self._kernel(node.func, grid, block, node.sharedMemBytes, node.kernelParams)

  def do_cuGraphAddMemcpyNode(
    self, place: int, graph: int, before: int, count: int, node: int, context: int | None
  ) -> None:
    self._node(place, graph, before, count, copy_of(node))

  def do_cuGraphInstantiateWithFlags(self, place: int, graph: int, flags: int) -> None:
    template = self.thing(graph, CallGraph)
    nodes = {node: Call(**vars(call)) for node, call in template.nodes.items()}
    self.new(place, CallGraph(nodes, template))

  def _named(self, graph: int) -> dict[int, Call]:
    """What the nodes of a graph that can be launched are."""
    found: CallGraph = self.thing(graph, CallGraph)
    if found.made_from not in self.handles.values():
      raise Misuse("a node is named, but the graph that it is of was destroyed")
    return found.nodes

  def do_cuGraphExecKernelNodeSetParams_v2(self, graph: int, node: int, parameters: int) -> None:
    nodes, call = self._named(graph), self._kernel_of(parameters)
    if nodes[node].module is not call.module:
      raise Status(INVALID)
    nodes[node] = call

  def do_cuGraphExecMemcpyNodeSetParams(self, graph: int, node: int, copy: int, context: int | None) -> None:
    nodes = self._named(graph)
    if nodes[node].module is not None:
      raise Status(INVALID)
    nodes[node] = copy_of(copy)

  def do_cuGraphNodeSetEnabled(self, graph: int, node: int, enabled: int) -> None:
    self._named(graph)[node].enabled = bool(enabled)

  def do_cuGraphLaunch(self, graph: int, stream: int) -> None:
    calls = [Call(**vars(call)) for call in self.thing(graph, CallGraph).nodes.values()]
    for call in calls:
      self.enqueue(self.thing(stream, Stream), lambda call=call: self.execute(call))  # type: ignore[misc]

  def do_cuGraphExecDestroy(self, graph: int) -> None:
    self.do_cuGraphDestroy(graph)
