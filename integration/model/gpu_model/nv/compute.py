"""The compute engine: classes TURING_COMPUTE_A (c5c0) to BLACKWELL_COMPUTE_B (cec0). Launches by QMD, caches, reports.

What a launch must have is checked here; the kernel itself is PTX where the machine code would be (`cubin.py`), and is
run by the model's machine.
"""

from __future__ import annotations

import ctypes
import re
import struct
from dataclasses import dataclass
from functools import lru_cache

from gpu_model.machine import Buffer, Options, Wrong, launch
from gpu_model.nv.cubin import Head, Program
from gpu_model.nv.engine import Engine
from gpu_model.nv.errors import ChannelError, Misuse, MmuFault, Xid
from gpu_model.nv.tables import Qmd, count, layouts, qmd_bytes
from gpu_model.ptx import Kernel, Module
from gpu_model.toolchain import Refused

GIB4 = 4 << 30
GRID_CTA, L1_SYSMEMBAR, SCHEDULE, INVALIDATE_COPY_SCHEDULE, PREFETCH_SCHEDULE = 2, 1, 2, 3, 9
DEPENDENT_SCHEDULE = 1
LARGEST_GRID, LARGEST_BLOCK, MOST_THREADS = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 1024
CACHES = ("TEXTURE_HEADER", "TEXTURE_SAMPLER", "TEXTURE_DATA", "SHADER_DATA", "INSTRUCTION", "SHADER_CONSTANT")
FREE = re.compile(
  r"QMD_GROUP_ID|SM_GLOBAL_CACHING_ENABLE|API_VISIBLE_CALL_LIMIT|SAMPLER_INDEX|FREE_CTA_SLOTS_EMPTY_SM|CORRELATION_ID.*"
  r"|DEBUG_ID.*|OCCUPANCY_.*|CONSTANT_(BUFFER|BANK)_PREFETCH.*|DISABLE_AUTO_INVALIDATE|DEMOTE_L2_EVICT_LAST"
  r"|SHARED_ALLOCATION_ENABLE|PROGRAM_PREFETCH_.*|ICC_PREFETCH_SIZE|CTA_LAUNCH_QUEUE|REGISTER_COUNT"
  r"|INVALIDATE_.*|CONSTANT_BUFFER_.*|QMD_(MAJOR_|MINOR_)?VERSION|SEMAPHORE_RELEASE_ENABLE\d|RELEASE.*|DEPENDENT_QMD.*"
  r"|(CTA_RASTER|GRID)_(WIDTH|HEIGHT|DEPTH)|CTA_THREAD_DIMENSION\d|REGISTER_COUNT_V|BARRIER_COUNT"
  r"|(MIN|MAX|TARGET)_SM_CONFIG_SHARED_MEM_SIZE|SHARED_MEMORY_SIZE.*|SHADER_LOCAL_MEMORY_.*|PROGRAM_ADDRESS_.*"
  r"|SASS_VERSION|QMD_TYPE|CWD_MEMBAR_TYPE|GP[CU]_CGA_(WIDTH|HEIGHT|DEPTH)"
)
"""Fields that may be other than 0: hints, and those that the model looks at. All others are what it does not know."""


@dataclass(frozen=True)
class Launch:
  """What a QMD says, the same of all versions."""

  program: int
  grid: tuple[int, int, int]
  block: tuple[int, int, int]
  registers: int
  barriers: int
  shared: int
  configurations: tuple[int, int, int]
  """Least, most and wanted of an SM's shared memory, as the fields have it."""
  local: tuple[int, int]
  banks: dict[int, tuple[int, int]]
  """Address and bytes of the constant banks that are valid."""
  invalidates: frozenset[str]
  fresh_banks: frozenset[int]
  releases: tuple[tuple[int, int, bool, bool, bool], ...]
  """Address, payload, 64 bits, with time, behind a barrier of all memory."""
  dependents: tuple[tuple[int, int], ...]
  """QMDs that come when this one is done: address and action."""
  membar: int
  sass: int
  prefetch: tuple[int, int]


def decoded(qmd: Qmd) -> Launch:
  """All fields of a QMD that a launch is made of. Raises Misuse for others."""
  if unknown := qmd.unknown():
    low = (unknown & -unknown).bit_length() - 1
    raise Misuse(f"bit {low} of the QMD ({qmd.layout}) is set, which no field has, or one that is the hardware's")
  for name, place in qmd.fields.items():
    if not FREE.fullmatch(name):
      for index in range(count(name) if len(place) > 2 else 1):
        if value := qmd.get(name, index):
          raise Misuse(f"the model knows no QMD with {name} = {value}")
  axes = ("WIDTH", "HEIGHT", "DEPTH")
  grid = tuple(qmd.first(f"GRID_{axis}", f"CTA_RASTER_{axis}") for axis in axes)
  block = tuple(qmd.get(f"CTA_THREAD_DIMENSION{axis}") for axis in range(3))
  banks = {
    n: (qmd.address("CONSTANT_BUFFER_ADDR", n), qmd.scaled("CONSTANT_BUFFER_SIZE", n))
    for n in range(8) if qmd.get("CONSTANT_BUFFER_VALID", n)
  }  # fmt: skip
  sizes = tuple(qmd.get(f"{which}_SM_CONFIG_SHARED_MEM_SIZE") for which in ("MIN", "MAX", "TARGET"))
  if qmd.has("QMD_TYPE") and qmd.get("QMD_TYPE") != GRID_CTA:
    raise Misuse(f"the model knows no QMD_TYPE {qmd.get('QMD_TYPE')}, but GRID_CTA, {GRID_CTA}")
  if any(qmd.get(f"GP{which}_CGA_{axis}") > 1 for which in "CU" for axis in axes if qmd.has(f"GP{which}_CGA_{axis}")):
    raise Misuse("the model knows no clusters")
  prefetch = 0, 0
  if qmd.has("PROGRAM_PREFETCH_SIZE"):
    high, low = (qmd.get(f"PROGRAM_PREFETCH_ADDR_{half}_SHIFTED") for half in ("UPPER", "LOWER"))
    prefetch = (high << 32 | low) << 8, qmd.get("PROGRAM_PREFETCH_SIZE")
  return Launch(
    qmd.address("PROGRAM_ADDRESS"), (grid[0], grid[1], grid[2]), (block[0], block[1], block[2]),
    qmd.first("REGISTER_COUNT_V", "REGISTER_COUNT"), qmd.get("BARRIER_COUNT"), qmd.scaled("SHARED_MEMORY_SIZE"),
    (sizes[0], sizes[1], sizes[2]),
    (qmd.scaled("SHADER_LOCAL_MEMORY_LOW_SIZE"), qmd.scaled("SHADER_LOCAL_MEMORY_HIGH_SIZE")), banks,
    frozenset(name for name in CACHES if qmd.get(f"INVALIDATE_{name}_CACHE")),
    frozenset(n for n in range(8) if qmd.get("CONSTANT_BUFFER_INVALIDATE", n)),
    _releases(qmd), _dependents(qmd), qmd.get("CWD_MEMBAR_TYPE"), qmd.get("SASS_VERSION"), prefetch,
  )  # fmt: skip


def _releases(qmd: Qmd) -> tuple[tuple[int, int, bool, bool, bool], ...]:
  found = []
  for n in range(3):
    if qmd.has("RELEASE_ENABLE"):  # version 4 and later
      enabled, size, wide, barrier, reduction = (
        qmd.get(f"RELEASE_{name}", n)
        for name in ("ENABLE", "STRUCTURE_SIZE", "PAYLOAD64B", "MEMBAR_TYPE", "REDUCTION_ENABLE")
      )
      place, payload = (qmd.address(f"RELEASE_SEMAPHORE{n}_{name}") for name in ("ADDR", "PAYLOAD"))
    elif qmd.has(f"RELEASE{n}_ENABLE"):  # version 3
      enabled, size, wide, barrier, reduction = (
        qmd.get(f"RELEASE{n}_{name}")
        for name in ("ENABLE", "STRUCTURE_SIZE", "PAYLOAD64B", "MEMBAR_TYPE", "REDUCTION_ENABLE")
      )
      place, payload = (qmd.address(f"RELEASE{n}_{name}") for name in ("ADDRESS", "PAYLOAD"))
    elif n < 2 and qmd.has(f"SEMAPHORE_RELEASE_ENABLE{n}"):
      enabled, size, wide = qmd.get(f"SEMAPHORE_RELEASE_ENABLE{n}"), qmd.get(f"RELEASE{n}_STRUCTURE_SIZE"), 0
      barrier, reduction = qmd.get("RELEASE_MEMBAR_TYPE"), qmd.get(f"RELEASE{n}_REDUCTION_ENABLE")
      place, payload = qmd.address(f"RELEASE{n}_ADDRESS"), qmd.get(f"RELEASE{n}_PAYLOAD")
    else:
      continue
    if not enabled:
      continue
    if reduction or size > 2 or (size == 2) != bool(wide) and size != 0:
      raise Misuse(f"release {n} of the QMD, of size {size}, with 64 bits: {wide}, with a reduction: {reduction}")
    found.append((place, payload if wide else payload & 0xFFFFFFFF, bool(wide), size == 0, bool(barrier)))
  return tuple(found)


def _dependents(qmd: Qmd) -> tuple[tuple[int, int], ...]:
  if qmd.has("DEPENDENT_QMD_SCHEDULE_ENABLE"):
    if not qmd.get("DEPENDENT_QMD_SCHEDULE_ENABLE"):
      return ()
    if qmd.get("DEPENDENT_QMD_TYPE") != 1 or qmd.get("DEPENDENT_QMD_FIELD_COPY"):
      raise Misuse("a dependent QMD that is a queue, or is copied")
    return ((qmd.get("DEPENDENT_QMD_POINTER") << 8, DEPENDENT_SCHEDULE),)
  found = []
  for n in range(2):
    stem = f"DEPENDENT_QMD{n}_"
    enabled, action = (
      (qmd.get(stem + "ENABLE"), qmd.get(stem + "ACTION")) if qmd.has(stem + "ENABLE")
      else (qmd.get("DEPENDENT_QMD_ENABLE", n), qmd.get("DEPENDENT_QMD_ACTION", n))
    )  # fmt: skip
    if enabled:
      if not qmd.has(stem + "POINTER"):
        raise Misuse(f"the model knows no dependent QMD {n} of version {qmd.layout}, which has no pointer to it")
      place = qmd.get(stem + "POINTER")
      found.append((place << 8, action))
  return tuple(found)


@lru_cache(maxsize=1024)
def kernel(ptx: str) -> Kernel:
  """PTX of one kernel, compiled for the model's machine."""
  (only,) = Module(ptx).kernels.values()
  return only


class Compute(Engine):
  """See the module."""

  results_of = "what kernels wrote without a barrier of all memory (CWD_MEMBAR_TYPE)"

  def settings(self) -> frozenset[str]:
    """See Engine."""
    return frozenset(
      "SET_SHADER_SHARED_MEMORY_WINDOW_A SET_SHADER_SHARED_MEMORY_WINDOW_B SET_SHADER_LOCAL_MEMORY_WINDOW_A"
      " SET_SHADER_LOCAL_MEMORY_WINDOW_B SET_SHADER_LOCAL_MEMORY_A SET_SHADER_LOCAL_MEMORY_B"
      " SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_A SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_B"
      " SET_SHADER_LOCAL_MEMORY_NON_THROTTLED_C SET_REPORT_SEMAPHORE_PAYLOAD_LOWER SET_REPORT_SEMAPHORE_PAYLOAD_UPPER"
      " SET_REPORT_SEMAPHORE_ADDRESS_LOWER SET_REPORT_SEMAPHORE_ADDRESS_UPPER SEND_PCAS_A LINE_LENGTH_IN LINE_COUNT"
      " SET_REPORT_SEMAPHORE_A SET_REPORT_SEMAPHORE_B SET_REPORT_SEMAPHORE_C"
      " OFFSET_OUT OFFSET_OUT_UPPER SET_SPA_VERSION SET_SHADER_EXCEPTIONS INVALIDATE_SKED_CACHES"
      " INVALIDATE_TEXTURE_HEADER_CACHE INVALIDATE_SAMPLER_CACHE INVALIDATE_TEXTURE_HEADER_CACHE_NO_WFI".split()
    )

  # *** order and caches ***

  def do_WAIT_FOR_IDLE(self, data: int, fields: dict[str, int]) -> None:
    """What comes behind begins when all before is done."""
    self.later(lambda: None, True)

  def do_INVALIDATE_SHADER_CACHES(self, data: int, fields: dict[str, int]) -> None:
    """Caches are empty, when all before is done."""
    self.later(lambda: self._invalidate(fields), True)

  def do_INVALIDATE_SHADER_CACHES_NO_WFI(self, data: int, fields: dict[str, int]) -> None:
    """Caches are empty."""
    self.later(lambda: self._invalidate({**fields, "DATA": fields["GLOBAL_DATA"]}), True)

  def _invalidate(self, fields: dict[str, int]) -> None:
    gpu = self.channel.gpu
    if fields.get("INSTRUCTION"):
      gpu.code.clear()
    if fields.get("CONSTANT"):
      gpu.constants.clear()
    if fields.get("DATA"):
      gpu.data_cached = False

  # *** reports, and bytes in the pushbuffer ***

  def do_REPORT_SEMAPHORE_EXECUTE(self, data: int, fields: dict[str, int]) -> None:
    """A semaphore is written when all before is done."""
    others = [name for name, value in fields.items() if value and name not in ("STRUCTURE_SIZE", "PAYLOAD_SIZE64")]
    if others:
      raise Misuse(f"the model knows no REPORT_SEMAPHORE_EXECUTE with {', '.join(others)}")
    address = self.value("SET_REPORT_SEMAPHORE_ADDRESS_UPPER") << 32 | self.value("SET_REPORT_SEMAPHORE_ADDRESS_LOWER")
    wide, size = bool(fields["PAYLOAD_SIZE64"]), fields["STRUCTURE_SIZE"]
    upper = self.value("SET_REPORT_SEMAPHORE_PAYLOAD_UPPER") << 32 if wide else 0
    self._report(address, upper | self.value("SET_REPORT_SEMAPHORE_PAYLOAD_LOWER"), size, wide)

  def do_SET_REPORT_SEMAPHORE_D(self, data: int, fields: dict[str, int]) -> None:
    """The same, as it was before; all classes still have it."""
    if others := [name for name, value in fields.items() if value and name != "STRUCTURE_SIZE"]:
      raise Misuse(f"the model knows no SET_REPORT_SEMAPHORE_D with {', '.join(others)}")
    address = self.value("SET_REPORT_SEMAPHORE_A") << 32 | self.value("SET_REPORT_SEMAPHORE_B")
    self._report(address, self.value("SET_REPORT_SEMAPHORE_C"), fields["STRUCTURE_SIZE"], False)

  def _report(self, address: int, payload: int, size: int, wide: bool) -> None:
    """`size`: 0, four words with the time; 1, one; 2, two."""
    nbytes, stamped = 8 if wide else 4, size == 0
    if size > 2 or address % (16 if stamped else nbytes) or (wide and size == 1):
      raise ChannelError(Xid.CLASS_ERROR, f"a report of structure {size} at {address:#x}, with 64 bits: {wide}")

    def run() -> None:
      self.channel.check_flushed()
      self.channel.release(address, payload, nbytes, stamped, "a report semaphore")

    self.later(run, True)

  def do_LAUNCH_DMA(self, data: int, fields: dict[str, int]) -> None:
    """The words of LOAD_INLINE_DATA that follow go to memory."""
    others = [n for n, value in fields.items() if value and n not in ("DST_MEMORY_LAYOUT", "COMPLETION_TYPE")]
    if others or fields["DST_MEMORY_LAYOUT"] != 1 or fields["COMPLETION_TYPE"] == 2 or self.value("LINE_COUNT") != 1:
      raise Misuse(f"the model knows no LAUNCH_DMA {data:#x} of the compute class")
    address = self.value("OFFSET_OUT_UPPER") << 32 | self.value("OFFSET_OUT")
    self.inline: list[int] | None = []
    self.inline_to = address, self.value("LINE_LENGTH_IN")

  def do_LOAD_INLINE_DATA(self, data: int, fields: dict[str, int]) -> None:
    """Four bytes of them."""
    words = getattr(self, "inline", None)
    if words is None:
      raise Misuse("LOAD_INLINE_DATA without LAUNCH_DMA before it")
    words.append(data)
    address, length = self.inline_to
    if 4 * len(words) >= length:
      self.inline = None
      content = b"".join(word.to_bytes(4, "little") for word in words)[:length]

      def run() -> None:
        self.space.reach(address, length, True, "inline data")
        ctypes.memmove(address, content, length)

      self.later(run, True)

  # *** launches ***

  def do_SEND_SIGNALING_PCAS_B(self, data: int, fields: dict[str, int]) -> None:
    """Schedule the QMD whose address was given."""
    if not fields["SCHEDULE"]:
      if fields["INVALIDATE"]:
        return
      raise Misuse(f"SEND_SIGNALING_PCAS_B {data:#x} schedules nothing")
    self._schedule()

  def do_SEND_SIGNALING_PCAS2_B(self, data: int, fields: dict[str, int]) -> None:
    """The same, as later classes have it."""
    action = fields["PCAS_ACTION"]
    if action == 0 or action == 1:
      return
    if action not in (SCHEDULE, INVALIDATE_COPY_SCHEDULE, PREFETCH_SCHEDULE) or data >> 4:
      raise Misuse(f"the model knows no SEND_SIGNALING_PCAS2_B {data:#x}")
    self._schedule()

  def _schedule(self) -> None:
    place = self.value("SEND_PCAS_A") << 8
    self.later(lambda: self._start(place), False)

  def _start(self, place: int) -> None:
    qmd = self._read(place)
    given = decoded(qmd)
    program = self._check(given, qmd)
    # without a barrier of all memory the semaphore may be seen before what the kernel wrote
    early = [row for row in given.releases if not row[4]]
    for address, payload, wide, stamped, _ in early:
      self.channel.release(address, payload, 8 if wide else 4, stamped, "a QMD's semaphore")
    self._run(given, program)
    for address, payload, wide, stamped, barrier in given.releases:
      if barrier:
        self.flushed = True
        self.channel.release(address, payload, 8 if wide else 4, stamped, "a QMD's semaphore")
    for other, action in given.dependents:
      if action != DEPENDENT_SCHEDULE:
        raise Misuse(f"the model knows no action {action} of a dependent QMD")
      self._start(other)

  def _read(self, place: int) -> Qmd:
    own = layouts(self.name)
    data = ctypes.string_at(self.space.reach(place, 256, what="a QMD"), 256)
    for layout in own:
      size = qmd_bytes(layout)
      if size > 256:
        data = ctypes.string_at(self.space.reach(place, size, what="a QMD"), size)
      qmd = Qmd(layout, data[:size])
      version = qmd.get("QMD_MAJOR_VERSION"), qmd.first("QMD_VERSION", "QMD_MINOR_VERSION")
      if version == tuple(int(part) for part in layout.split("_")[1:]):
        return qmd
    known = ", ".join(layout.split("_", 1)[1] for layout in own)
    raise Misuse(f"the QMD at {place:#x} is of no version that class {self.name} has: {known}")

  def _window(self, name: str, size: int) -> int:
    address = self.value(f"SET_SHADER_{name}_MEMORY_WINDOW_A") << 32 | self.value(f"SET_SHADER_{name}_MEMORY_WINDOW_B")
    if not address or address % (GIB4 if name == "SHARED" else 1 << 24):
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"the window of {name.lower()} memory is at {address:#x}")
    if found := self.space.overlap(address, size):
      text = f"the window of {name.lower()} memory, {address:#x}, covers memory at {found.address:#x}"
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, text)
    return address

  def _check(self, given: Launch, qmd: Qmd) -> Program:
    """All that a launch must have. Raises Misuse and ChannelError."""
    chip = self.channel.gpu.chip
    shared_window, local_window = self._window("SHARED", GIB4), self._window("LOCAL", 1 << 24)
    sizes = zip((*given.grid, *given.block), (*LARGEST_GRID, *LARGEST_BLOCK))
    x, y, z = given.block
    if any(not 0 < size <= most for size, most in sizes) or x * y * z > MOST_THREADS:
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"a grid of {given.grid} blocks of {given.block} threads")
    program = self._program(given)
    if not program.registers <= given.registers <= 255:
      raise Misuse(f"the QMD has {given.registers} registers, and the program {program.registers}")
    if -(-given.registers // 8) * 8 * (-(-x * y * z // 32) * 32) > 65536:
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"{given.registers} registers for {x * y * z} threads, of 65536")
    if not program.barriers <= given.barriers <= 16:
      raise Misuse(f"the QMD has {given.barriers} barriers, and the program {program.barriers}")
    if given.shared < program.shared or given.shared % 128:
      raise Misuse(f"the QMD has {given.shared} bytes of shared memory, and the program {program.shared}")
    if given.shared > chip.most_shared * 1024 + chip.reserved:
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"{given.shared} bytes of shared memory, of {chip.most_shared} KiB")
    legal = [size // 4 + 1 for size in chip.configurations]
    least, most, target = given.configurations
    if {least, most, target} - {*legal} or not least <= target <= most:
      raise Misuse(f"configurations {given.configurations} of shared memory, of {legal}")
    if (target - 1) * 4096 < given.shared:
      raise Misuse(f"{given.shared} bytes of shared memory in a configuration of {(target - 1) * 4096}")
    if given.membar not in (0, 1, 3):
      raise Misuse(f"CWD_MEMBAR_TYPE {given.membar}")
    digits = divmod(chip.sm, 10)
    if given.sass not in (0, digits[0] << 4 | digits[1]):
      raise Misuse(f"SASS_VERSION {given.sass:#x} on {chip.arch}")
    if given.prefetch[1] and given.prefetch[0] != given.program & ~255:
      raise Misuse(f"code is fetched ahead from {given.prefetch[0]:#x}, and begins at {given.program:#x}")
    if sum(given.local):
      where = self.value("SET_SHADER_LOCAL_MEMORY_A") << 32 | self.value("SET_SHADER_LOCAL_MEMORY_B")
      self.space.reach(where, 1, True, "local memory")
    self._constants(given, program, (shared_window, local_window))
    gpu = self.channel.gpu
    if "SHADER_DATA" in given.invalidates:
      gpu.data_cached = False
    if gpu.data_cached:
      raise Misuse("a launch may read from the SM's cache what kernels before it had there: nothing invalidated it")
    return program

  def _program(self, given: Launch) -> Program:
    address = given.program
    if address % 128:
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"the program is at {address:#x}, no multiple of 128")
    self.space.reach(address, Head.size, what="the program")
    length = Program.length(ctypes.string_at(address, Head.size))
    if not length:
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"at {address:#x} is no program: an illegal instruction")
    self.space.reach(address, length, what="the program")
    data, code = ctypes.string_at(address, length), self.channel.gpu.code
    if "INSTRUCTION" in given.invalidates:
      code.clear()
    if code.setdefault(address, data) != data:
      raise Misuse(f"other code is at {address:#x} than what the GPU has in its cache: nothing invalidated that")
    program = Program.read(data)
    target = re.search(r"^\.target (\w+)", program.ptx, re.MULTILINE)
    if target is None or target[1] != self.channel.gpu.chip.arch:
      raise ChannelError(Xid.GRAPHICS_EXCEPTION, f"code for {target and target[1]} on {self.channel.gpu.chip.arch}")
    return program

  def _constants(self, given: Launch, program: Program, windows: tuple[int, int]) -> None:
    """Constant bank 0: there, large enough, with what the system puts in front of the parameters."""
    chip, held = self.channel.gpu.chip, self.channel.gpu.constants
    if 0 not in given.banks:
      raise Misuse("constant bank 0 is not valid, and the program has its parameters there")
    if {*given.banks} - {0}:
      raise Misuse(f"constant banks {sorted(given.banks)} are valid, and the program has bank 0")
    address, size = given.banks[0]
    if address % 64 or size % 16 or not size:
      raise Misuse(f"constant bank 0 of {size} bytes at {address:#x}")
    if program.parameters != chip.parameters or size < chip.parameters + program.parameter_bytes:
      wanted = chip.parameters + program.parameter_bytes
      raise Misuse(f"constant bank 0 of {size} bytes, of which the program reads {wanted}")
    self.space.reach(address, size, what="constant bank 0")
    data = ctypes.string_at(address, size)
    if "SHADER_CONSTANT" in given.invalidates:
      held.clear()
    if 0 in given.fresh_banks:
      held.pop(address, None)
    if held.setdefault(address, data) != data:
      raise Misuse(f"constants at {address:#x} changed since they came to the cache, and nothing invalidated that")
    for place, window, name in zip(chip.windows, windows, ("shared", "local")):
      if (found := int.from_bytes(data[place : place + 8], "little")) != window:
        raise Misuse(f"c[0][{place:#x}] is {found:#x}, and the window of {name} memory {window:#x}")
    for place, sizes in zip(chip.sizes, (given.block, given.grid)):
      if (there := struct.unpack_from("<3I", data, place)) != sizes:
        raise Misuse(f"c[0][{place:#x}] has the sizes {there}, and the launch {sizes}")

  def _run(self, given: Launch, program: Program) -> None:
    gpu, address = self.channel.gpu, given.banks[0][0]
    gpu.data_cached = True
    try:
      made = kernel(program.ptx)
    except Refused as error:
      raise Misuse(f"the model cannot run this PTX: {error}") from error
    if made.signature.threads not in (None, given.block):
      raise ChannelError(
        Xid.GRAPHICS_EXCEPTION, f"{given.block} threads, and the program is for {made.signature.threads}"
      )
    gpu.launched.append(made.signature.name)
    place = address + program.parameters
    buffers = [Buffer(place, max(8, program.parameter_bytes), "the parameters", False)]
    buffers += self.space.buffers
    self.flushed = given.membar == L1_SYSMEMBAR and (self.flushed or not self.results)
    self.results = True
    options = self.channel.model.options or Options(checking=False)
    try:
      launch(made.call(given.shared - program.shared), buffers, given.grid, given.block, options)
    except Wrong as error:
      raise self._wrong(str(error)) from error

  def _wrong(self, text: str) -> ChannelError:
    """What the machine saw, as the error that a GPU tells: an address that is not mapped, or something else."""
    if found := re.search(r"(?:byte (-?\d+) of memory |in no buffer, at |to memory )0x([0-9a-f]+)", text):
      address = int(found[2], 16) + int(found[1] or 0)
      mapping = self.space.overlap(address, 1)
      if mapping is None or not mapping.writable:
        return MmuFault(address, "is not mapped" if mapping is None else "may only be read", f"a kernel: {text}")
    return ChannelError(Xid.GRAPHICS_EXCEPTION, text)
