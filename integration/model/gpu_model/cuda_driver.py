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
from collections.abc import Callable, Collection
from typing import Any

from gpu_model.cuda_objects import (
  Call,
  CallGraph,
  Event,
  Gpu,
  Mark,
  Misuse,
  Status,
  Stream,
  copy_of,
  refused,
  store,
  void,
)
from gpu_model.machine import Buffer, Options, Wrong, allocated, launch
from gpu_model.ptx import MOST_SHARED, Kernel, Module
from gpu_model.toolchain import Refused
from tiny_runtime_nv.driver import FUNCTIONS, Access, KernelNode

MEMORY = 64 << 20
INVALID, NO_MEMORY, NO_DEVICE, BAD_PTX, BAD_HANDLE, NOT_FOUND, ILLEGAL, UNKNOWN = 1, 2, 101, 218, 400, 500, 700, 999
NAMES = {
  INVALID: "CUDA_ERROR_INVALID_VALUE", NO_MEMORY: "CUDA_ERROR_OUT_OF_MEMORY", BAD_PTX: "CUDA_ERROR_INVALID_PTX",
  ILLEGAL: "CUDA_ERROR_ILLEGAL_ADDRESS", UNKNOWN: "CUDA_ERROR_UNKNOWN", BAD_HANDLE: "CUDA_ERROR_INVALID_HANDLE",
}  # fmt: skip
ENDS_PROCESS = {226, 700, 702, *range(714, 720), 721}
"""What cuda.h says "the process must be terminated and relaunched" of."""
GRAPH_UPDATE_FAILURE = 910
LARGEST_GRID, LARGEST_BLOCK = (2**31 - 1, 65535, 65535), (1024, 1024, 64)


class Model:
  """A machine with GPUs of compute capability 9.0. `apart`: pairs of them, by ordinal, with no way between them."""

  def __init__(
    self, memory: int = MEMORY, version: int = 13000, options: Options | None = None, gpus: int = 1,
    apart: Collection[tuple[int, int]] = (),
  ) -> None:  # fmt: skip
    self.version, self.options, self.apart = version, options, {pair for a, b in apart for pair in ((a, b), (b, a))}
    self.gpus = [Gpu(ordinal, memory) for ordinal in range(gpus)]
    self.misuse: list[str] = []
    self.lock = threading.RLock()
    self.current = threading.local()
    self.initialised = False
    self.calls: list[str] = []
    self.texts: dict[str, ctypes.Array[Any]] = {}
    self.wrong = ""
    self.refuses_changes = False
    """Graphs that are made cannot be changed."""
    self.handles: dict[int, Any] = {}
    self.owners: dict[int, Gpu] = {}
    """The GPU in whose context each handle was made."""

  def reset(self, gpu: Gpu) -> None:
    """All that a context holds is gone; a fault that ends the process stays."""
    for handle in [handle for handle, owner in self.owners.items() if owner is gpu]:
      self.drop(handle)
    gpu.allocations, gpu.pinned = {}, {}
    if gpu.broken not in ENDS_PROCESS:
      gpu.broken = 0

  @property
  def retained(self) -> int:
    """How often contexts are held."""
    return sum(gpu.retained for gpu in self.gpus)

  @property
  def here(self) -> Gpu:
    """The GPU whose context is current in this thread."""
    found = [gpu for gpu in self.gpus if gpu.context == getattr(self.current, "context", None)]
    if not found:
      raise Misuse("no context is current in this thread")
    return found[0]

  def __getattr__(self, name: str) -> Any:
    """A function of the library, with C types; AttributeError for one that is not in it."""
    method = getattr(type(self), f"do_{name}", None)
    if method is None or name not in FUNCTIONS:
      raise AttributeError(name)

    def call(*arguments: Any) -> int:
      with self.lock:
        self.calls.append(name)
        try:
          if not name.startswith(("cuGetError", "cuDevice", "cuCtx")):
            if (current := getattr(self.current, "context", None)) and (gpu := self._of_context(current)).broken:
              return gpu.broken
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
    self.handles[handle], self.owners[handle] = thing, self.here
    store(place, ctypes.c_void_p, handle)

  def drop(self, handle: int) -> None:
    """It stands for nothing any more."""
    del self.handles[handle], self.owners[handle]

  def thing(self, handle: int | None, kind: type[Any], of_any: bool = False) -> Any:
    """What a handle stands for, of the current context unless it may be `of_any`."""
    found = self.handles.get(handle or 0)
    if not isinstance(found, kind):
      raise Misuse(f"{handle} is no handle of a {kind.__name__}, or it was destroyed")
    if self.here is not self.owners[handle or 0] and not of_any:
      raise Misuse(f"a {kind.__name__} of another context than the current one")
    return found

  def _of_context(self, context: int | None) -> Gpu:
    found = [gpu for gpu in self.gpus if gpu.context == context]
    if not found:
      raise Misuse(f"{context} is no context")
    return found[0]

  def _of_pool(self, pool: int | None) -> Gpu:
    found = [gpu for gpu in self.gpus if gpu.pool == pool]
    if not found:
      raise Misuse(f"{pool} is no pool")
    return found[0]

  def _device(self, ordinal: int) -> Gpu:
    if not 0 <= ordinal < len(self.gpus):
      raise Status(NO_DEVICE)
    return self.gpus[ordinal]

  def reachable(self, gpu: Gpu) -> dict[int, Any]:
    """The memory that kernels and copies of a GPU can use: its own, and that of pools that let it."""
    pools = [other for other in self.gpus if other is gpu or gpu.ordinal in other.readers]
    return {begin: memory for other in pools for begin, memory in other.allocations.items()}

  def bytes_at(self, address: int, size: int, gpu: Gpu, user: Gpu | None = None) -> int:
    """An address of memory of a GPU, with this many bytes behind it, for itself or another `user`; else the context is
    broken."""
    user = user or gpu
    for begin, memory in self.reachable(user).items():
      if begin <= address and address + size <= begin + len(memory) and begin in gpu.allocations:
        return address
    user.broken = ILLEGAL
    raise Status(ILLEGAL)

  def host_at(self, address: int | None, size: int) -> int:
    """An address of pinned memory."""
    for begin, memory in self.here.pinned.items():
      if address is not None and begin <= address and address + size <= begin + len(memory):
        return address
    raise Misuse(f"an asynchronous copy of {size} bytes with memory of the host that is not pinned")

  def enqueue(self, stream: Stream, work: Callable[[], None]) -> None:
    def guarded() -> None:
      if not stream.gpu.broken:
        work()

    stream.work.append(guarded)

  def finish(self, stream: Stream, until: Mark | None = None) -> None:
    stream.run(until)
    if stream.gpu.broken:
      raise Status(stream.gpu.broken)

  def execute(self, call: Call, gpu: Gpu) -> None:
    """Run a kernel, or copy."""
    if not call.enabled:
      return
    if call.kernel is None:
      target, source, size = call.copy
      if abs(target - source) < size:
        raise Misuse("a copy whose source and target overlap")
      self.bytes_at(target, size, gpu), self.bytes_at(source, size, gpu)
      ctypes.memmove(target, source, size)
      return
    if call.kernel not in self.handles.values():
      raise Misuse(f"kernel {call.kernel.signature.name} runs after its module was unloaded")
    words = (ctypes.c_uint64 * max(1, len(call.words)))(*call.words)
    buffers = [Buffer(ctypes.addressof(words), ctypes.sizeof(words), "the parameters", False)]
    buffers += [Buffer(begin, len(memory), f"memory {begin:#x}") for begin, memory in self.reachable(gpu).items()]
    try:
      launch(call.kernel.call(call.shared), buffers, call.grid, call.block, self.options)
    except Wrong as error:
      self.wrong = str(error)
      gpu.broken = ILLEGAL

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
    store(place, ctypes.c_int, self._device(ordinal).ordinal)

  def do_cuDeviceGetAttribute(self, place: int, attribute: int, device: int) -> None:
    store(place, ctypes.c_int, {75: 9, 76: 0, 115: 1}[attribute])

  def do_cuDeviceTotalMem_v2(self, place: int, device: int) -> None:
    store(place, ctypes.c_size_t, self._device(device).memory)

  def do_cuDeviceCanAccessPeer(self, place: int, device: int, peer: int) -> None:
    pair = self._device(device).ordinal, self._device(peer).ordinal
    store(place, ctypes.c_int, pair[0] != pair[1] and pair not in self.apart)

  def do_cuDevicePrimaryCtxRetain(self, place: int, device: int) -> None:
    gpu = self._device(device)
    gpu.retained += 1
    store(place, ctypes.c_void_p, gpu.context)

  def do_cuDevicePrimaryCtxRelease_v2(self, device: int) -> None:
    gpu = self._device(device)
    if not gpu.retained:
      raise Misuse("the primary context is released more often than it was retained")
    gpu.retained -= 1
    if not gpu.retained:
      mine = [self.handles[handle] for handle, owner in self.owners.items() if owner is gpu]
      mine = [thing for thing in mine if not isinstance(thing, Kernel)]  # which goes with its module
      if not gpu.broken and (gpu.allocations or mine or gpu.pinned):
        kinds = sorted({type(thing).__name__ for thing in mine})
        self.misuse.append(f"left behind: {len(gpu.allocations)} allocations, {kinds}, {len(gpu.pinned)} pinned")
      self.reset(gpu)

  def do_cuDevicePrimaryCtxReset_v2(self, device: int) -> None:
    self.reset(self._device(device))

  def do_cuCtxSetCurrent(self, context: int | None) -> None:
    self.current.context = context

  def do_cuMemGetInfo_v2(self, free: int, total: int) -> None:
    store(free, ctypes.c_size_t, self.here.memory - self.here.used)
    store(total, ctypes.c_size_t, self.here.memory)

  def do_cuDeviceGetDefaultMemPool(self, place: int, device: int) -> None:
    store(place, ctypes.c_void_p, self._device(device).pool)

  def do_cuMemPoolSetAttribute(self, pool: int, attribute: int, value: int) -> None:
    if self._of_pool(pool) is not self.here or attribute != 4:
      raise Misuse("another pool, or attribute")

  def do_cuMemPoolTrimTo(self, pool: int, size: int) -> None:
    self._of_pool(pool)

  def do_cuMemPoolSetAccess(self, pool: int, given: int, count: int) -> None:
    owner = self._of_pool(pool)
    for access in (Access * count).from_address(given):
      pair = self._device(access.location.id).ordinal, owner.ordinal
      if (access.location.type, access.flags) != (1, 3) or pair[0] == pair[1]:
        raise Misuse("access to a pool for something else than another device, or not to read and write")
      if pair in self.apart:
        raise Status(NO_DEVICE)
      owner.readers.add(pair[0])

  def do_cuMemAllocAsync(self, place: int, size: int, stream: int) -> None:
    self.thing(stream, Stream)
    if size == 0:
      raise Status(INVALID)
    if self.here.used + size > self.here.memory:
      raise Status(NO_MEMORY)
    memory = allocated(size, 0xA5)
    self.here.allocations[ctypes.addressof(memory)] = memory
    store(place, ctypes.c_uint64, ctypes.addressof(memory))

  def do_cuMemFreeAsync(self, address: int, stream: int) -> None:
    gpu = self.here
    if address not in gpu.allocations:
      raise Misuse(f"{address:#x} is no allocation")
    self.enqueue(self.thing(stream, Stream), lambda: void(gpu.allocations.pop(address)))

  def do_cuMemHostAlloc(self, place: int, size: int, flags: int) -> None:
    memory = ctypes.create_string_buffer(size)
    self.here.pinned[ctypes.addressof(memory)] = memory
    store(place, ctypes.c_void_p, ctypes.addressof(memory))

  def do_cuMemFreeHost(self, address: int) -> None:
    del self.here.pinned[address]

  def do_cuMemcpyHtoDAsync_v2(self, target: int, source: int, size: int, stream: int) -> None:
    self.host_at(source, size)
    queue, place = self.thing(stream, Stream), self.here
    self.enqueue(queue, lambda: void(ctypes.memmove(self.bytes_at(target, size, place), source, size)))

  def do_cuMemcpyDtoHAsync_v2(self, target: int, source: int, size: int, stream: int) -> None:
    self.host_at(target, size)
    queue, place = self.thing(stream, Stream), self.here
    self.enqueue(queue, lambda: void(ctypes.memmove(target, self.bytes_at(source, size, place), size)))

  def do_cuMemcpyDtoDAsync_v2(self, target: int, source: int, size: int, stream: int) -> None:
    queue, call = self.thing(stream, Stream), Call(None, copy=(target, source, size))
    self.enqueue(queue, lambda: self.execute(call, queue.gpu))

  def do_cuMemcpyPeerAsync(
    self, target: int, target_context: int, source: int, source_context: int, size: int, stream: int
  ) -> None:
    queue, to, of = self.thing(stream, Stream), self._of_context(target_context), self._of_context(source_context)
    if to is of:
      raise Misuse("a copy within one device as one between two")

    def work() -> None:
      self.bytes_at(target, size, to, queue.gpu), self.bytes_at(source, size, of, queue.gpu)
      ctypes.memmove(target, source, size)

    self.enqueue(queue, work)

  def do_cuStreamCreate(self, place: int, flags: int) -> None:
    self.new(place, Stream(self.here))

  def do_cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
    """For where the event was recorded last, whatever becomes of it later."""
    mark = self.thing(event, Event, of_any=True).mark
    if mark is not None:
      self.thing(stream, Stream).work.append(lambda: mark.stream.run(mark))

  def do_cuStreamSynchronize(self, stream: int) -> None:
    self.finish(self.thing(stream, Stream))

  def do_cuStreamDestroy_v2(self, stream: int) -> None:
    self.thing(stream, Stream).run()
    self.drop(stream)

  def do_cuEventCreate(self, place: int, flags: int) -> None:
    self.new(place, Event())

  def do_cuEventRecord(self, event: int, stream: int) -> None:
    self._record(self.thing(event, Event), self.thing(stream, Stream))

  @staticmethod
  def _record(event: Event, queue: Stream) -> None:
    mark = event.mark = Mark(queue)

    def reached() -> None:
      mark.at = time.perf_counter()

    queue.work.append(reached)

  def do_cuEventSynchronize(self, event: int) -> None:
    mark = self.thing(event, Event).mark
    if mark is not None:
      self.finish(mark.stream, mark)

  def do_cuEventElapsedTime(self, place: int, first: int, last: int) -> None:
    marks = [self.thing(event, Event).mark for event in (first, last)]
    if any(mark is None or mark.at is None for mark in marks):
      raise Misuse("time between events that were not reached")
    store(place, ctypes.c_float, (marks[1].at - marks[0].at) * 1e3)

  def do_cuEventDestroy_v2(self, event: int) -> None:
    self.thing(event, Event)
    self.drop(event)

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
    kernel = self.thing(module, Module).kernels.get(name.decode())
    if kernel is None:
      raise Status(NOT_FOUND)
    if (handle := self._function(kernel)) is None:
      self.new(place, kernel)
    else:
      store(place, ctypes.c_void_p, handle)

  def _function(self, kernel: Kernel) -> int | None:
    """The handle that a kernel has been asked for by."""
    return next((handle for handle, thing in self.handles.items() if thing is kernel), None)

  def do_cuModuleUnload(self, module: int) -> None:
    for kernel in self.thing(module, Module).kernels.values():
      if (handle := self._function(kernel)) is not None:
        self.drop(handle)
    self.drop(module)

  def do_cuFuncGetAttribute(self, place: int, attribute: int, function: int) -> None:
    self.thing(function, Kernel)
    store(place, ctypes.c_int, {0: 1024, 4: 32}[attribute])

  def do_cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> None:
    kernel = self.thing(function, Kernel)
    if attribute != 8 or not 0 <= value <= MOST_SHARED:
      raise Status(INVALID)
    kernel.most_at_launch = value

  def _kernel(self, function: int, grid: Any, block: Any, shared: int, parameters: int) -> Call:
    kernel = self.thing(function, Kernel)
    too_large = [size > most for size, most in zip((*grid, *block), (*LARGEST_GRID, *LARGEST_BLOCK))]
    wrong_block = kernel.signature.threads not in (None, tuple(block))
    if shared > kernel.most_at_launch:
      raise Status(INVALID)
    if 0 in grid or 0 in block or any(too_large) or block[0] * block[1] * block[2] > 1024 or wrong_block:
      raise Status(INVALID)
    count = kernel.signature.parameters
    places = (ctypes.c_void_p * count).from_address(parameters)
    words = [ctypes.c_uint64.from_address(place).value for place in places if place]
    return Call(kernel, words, tuple(grid), tuple(block), shared)

  def do_cuLaunchKernel(self, function: int, *rest: Any) -> None:
    grid, block, (shared, stream, parameters, _) = rest[:3], rest[3:6], rest[6:]
    call, queue = self._kernel(function, grid, block, shared, parameters), self.thing(stream, Stream)
    self.enqueue(queue, lambda: self.execute(call, queue.gpu))

  def do_cuGraphCreate(self, place: int, flags: int) -> None:
    self.new(place, CallGraph())

  def do_cuGraphDestroy(self, graph: int) -> None:
    self.thing(graph, CallGraph)
    self.drop(graph)

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

  def do_cuGraphAddEventRecordNode(self, place: int, graph: int, before: int | None, count: int, event: int) -> None:
    self._node(place, graph, before, count, Call(None, event=self.thing(event, Event)))

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

  def _to_change(self, graph: int) -> dict[int, Call]:
    if self.refuses_changes:
      raise Status(GRAPH_UPDATE_FAILURE)
    return self._named(graph)

  def do_cuGraphExecKernelNodeSetParams_v2(self, graph: int, node: int, parameters: int) -> None:
    nodes, call = self._to_change(graph), self._kernel_of(parameters)
    if nodes[node].kernel is None:
      raise Status(INVALID)
    nodes[node] = call

  def do_cuGraphExecMemcpyNodeSetParams(self, graph: int, node: int, copy: int, context: int | None) -> None:
    nodes = self._to_change(graph)
    if nodes[node].kernel is not None:
      raise Status(INVALID)
    nodes[node] = copy_of(copy)

  def do_cuGraphNodeSetEnabled(self, graph: int, node: int, enabled: int) -> None:
    self._named(graph)[node].enabled = bool(enabled)

  def do_cuGraphLaunch(self, graph: int, stream: int) -> None:
    calls = [Call(**vars(call)) for call in self.thing(graph, CallGraph).nodes.values()]
    queue = self.thing(stream, Stream)
    for call in calls:
      if call.event is not None:
        if call.event not in self.handles.values():
          raise Misuse("a graph records an event that was destroyed")
        self._record(call.event, queue)
        continue
      self.enqueue(queue, lambda call=call: self.execute(call, queue.gpu))  # type: ignore[misc]

  def do_cuGraphExecDestroy(self, graph: int) -> None:
    self.do_cuGraphDestroy(graph)
