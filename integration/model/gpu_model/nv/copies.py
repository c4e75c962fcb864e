"""The copy engine: classes TURING_DMA_COPY_A (c5b5) to BLACKWELL_DMA_COPY_B (cab5)."""

from __future__ import annotations

import ctypes

from gpu_model.nv.engine import Engine
from gpu_model.nv.errors import ChannelError, Misuse, Xid

NON_PIPELINED = 2
FOUR_WORDS = 2
KNOWN = {
  "DATA_TRANSFER_TYPE", "FLUSH_ENABLE", "FLUSH_TYPE", "SEMAPHORE_TYPE", "SRC_MEMORY_LAYOUT", "DST_MEMORY_LAYOUT",
  "MULTI_LINE_ENABLE", "SEMAPHORE_PAYLOAD_SIZE", "DISABLE_PLC", "REMAP_ENABLE",
}  # fmt: skip
COMPONENTS = {4: "SET_REMAP_CONST_A", 5: "SET_REMAP_CONST_B"}


class Copies(Engine):
  """See the module."""

  results_of = "what the copy engine wrote without a flush"

  def settings(self) -> frozenset[str]:
    """See Engine."""
    return frozenset({
      "SET_SEMAPHORE_A", "SET_SEMAPHORE_B", "SET_SEMAPHORE_PAYLOAD", "SET_SEMAPHORE_PAYLOAD_UPPER", "OFFSET_IN_UPPER",
      "OFFSET_IN_LOWER", "OFFSET_OUT_UPPER", "OFFSET_OUT_LOWER", "PITCH_IN", "PITCH_OUT", "LINE_LENGTH_IN",
      "LINE_COUNT", "SET_REMAP_CONST_A", "SET_REMAP_CONST_B", "SET_REMAP_COMPONENTS",
    })  # fmt: skip

  def do_LAUNCH_DMA(self, data: int, fields: dict[str, int]) -> None:
    """A copy, a semaphore's release, or both."""
    if unknown := [name for name, value in fields.items() if value and name not in KNOWN]:
      if {"SRC_TYPE", "DST_TYPE"} & {*unknown}:
        raise ChannelError(Xid.CLASS_ERROR, "LAUNCH_DMA with physical addresses, which need privileges")
      raise Misuse(f"the model knows no LAUNCH_DMA with {', '.join(unknown)}")
    transfer = fields["DATA_TRANSFER_TYPE"]
    if transfer == 3 or fields["SEMAPHORE_TYPE"] == 3:
      raise ChannelError(Xid.CLASS_ERROR, f"LAUNCH_DMA {data:#x}: no such type of transfer or semaphore")
    if transfer:
      self._copy(fields)
    if fields["SEMAPHORE_TYPE"]:
      self._release(fields)

  def _copy(self, fields: dict[str, int]) -> None:
    if not fields["DST_MEMORY_LAYOUT"] or not fields["SRC_MEMORY_LAYOUT"]:
      raise Misuse("the model knows no copies of block-linear memory: LAUNCH_DMA wants MEMORY_LAYOUT_PITCH")
    target = self.value("OFFSET_OUT_UPPER") << 32 | self.value("OFFSET_OUT_LOWER")
    size, lines = self.value("LINE_LENGTH_IN"), 1
    pitch_in = pitch_out = 0
    if fields["MULTI_LINE_ENABLE"]:
      lines, pitch_in, pitch_out = (self.value(name) for name in ("LINE_COUNT", "PITCH_IN", "PITCH_OUT"))
    if not size or not lines:
      raise Misuse(f"a copy of {lines} lines of {size} bytes")
    flush = bool(fields["FLUSH_ENABLE"])
    if fields["REMAP_ENABLE"]:
      pattern = self._pattern()
      self.later(
        lambda: self._fill(target, pattern, size, lines, pitch_out, flush),
        fields["DATA_TRANSFER_TYPE"] == NON_PIPELINED,
      )
      return
    source = self.value("OFFSET_IN_UPPER") << 32 | self.value("OFFSET_IN_LOWER")
    rows = [(target + n * pitch_out, source + n * pitch_in) for n in range(lines)]
    self.later(lambda: self._move(rows, size, flush), fields["DATA_TRANSFER_TYPE"] == NON_PIPELINED)

  def _move(self, rows: list[tuple[int, int]], size: int, flush: bool) -> None:
    for target, source in rows:
      self.space.reach(source, size, what="the copy engine's source")
      self.space.reach(target, size, True, "the copy engine's target")
      if abs(target - source) < size:
        raise Misuse(f"a copy of {size} bytes from {source:#x} to {target:#x}, which overlap")
      ctypes.memmove(target, source, size)
    self.results, self.flushed = True, flush

  def _pattern(self) -> bytes:
    """What is written to each element, of constants."""
    word = self.value("SET_REMAP_COMPONENTS")
    size, number = (word >> 16 & 3) + 1, (word >> 24 & 3) + 1
    parts = [word >> 4 * n & 7 for n in range(number)]
    if {*parts} - {*COMPONENTS}:
      raise Misuse("the model knows remapping to constants only")
    return b"".join((self.value(COMPONENTS[part]) & (1 << 8 * size) - 1).to_bytes(size, "little") for part in parts)

  def _fill(self, target: int, pattern: bytes, count: int, lines: int, pitch: int, flush: bool) -> None:
    for line in range(lines):
      self.space.reach(target + line * pitch, len(pattern) * count, True, "the copy engine's target")
      ctypes.memmove(target + line * pitch, pattern * count, len(pattern) * count)
    self.results, self.flushed = True, flush

  def _release(self, fields: dict[str, int]) -> None:
    address = self.value("SET_SEMAPHORE_A") << 32 | self.value("SET_SEMAPHORE_B")
    wide, stamped = bool(fields.get("SEMAPHORE_PAYLOAD_SIZE", 0)), fields["SEMAPHORE_TYPE"] == FOUR_WORDS
    payload = self.value("SET_SEMAPHORE_PAYLOAD") | (self.value("SET_SEMAPHORE_PAYLOAD_UPPER") << 32 if wide else 0)
    size = 8 if wide else 4
    if address % (16 if stamped else size):
      raise ChannelError(Xid.CLASS_ERROR, f"a semaphore of {16 if stamped else size} bytes at {address:#x}")
    flush = bool(fields["FLUSH_ENABLE"])

    def run() -> None:
      self.flushed = self.flushed or flush
      if self.results and not self.flushed:
        self.results = False
        raise Misuse("the copy engine releases a semaphore, and was not told to flush what it wrote (FLUSH_ENABLE)")
      self.channel.release(address, payload, size, stamped, "the copy engine's semaphore")

    self.later(run, True)
