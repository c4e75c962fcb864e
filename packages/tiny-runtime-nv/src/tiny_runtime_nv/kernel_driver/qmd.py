"""Queue meta data: the structure in memory that tells the GPU of a launch, filled in and read back field by field."""

from __future__ import annotations

from tiny_runtime_nv.kernel_driver.tables import Layout


class QMD:
  """One of a layout, all zeros at first."""

  def __init__(self, layout: Layout, value: int = 0) -> None:
    self.layout, self.value = layout, value

  def __setitem__(self, key: str | tuple[str, int], value: int | str) -> None:
    """Set a field, or one of an array. Raises KeyError, OverflowError."""
    name, index = key if isinstance(key, tuple) else (key, 0)
    field = self.layout.fields[name]
    low = field.low + index * field.stride
    mask = (1 << field.high - field.low + 1) - 1
    try:
      self.value = self.value & ~(mask << low) | field.number(value) << low
    except OverflowError as error:
      raise OverflowError(f"{name}: {error}") from error

  def __getitem__(self, key: str | tuple[str, int]) -> int:
    name, index = key if isinstance(key, tuple) else (key, 0)
    field = self.layout.fields[name]
    return self.value >> field.low + index * field.stride & (1 << field.high - field.low + 1) - 1

  def __contains__(self, name: str) -> bool:
    """Whether the layout has such a field."""
    return name in self.layout.fields

  def _shift(self, name: str, value: int) -> tuple[str, int]:
    """What a field's name ends with if it is without its last bits, and how many these are."""
    shift = self.layout.shifts.get(name, 0)
    if value & (1 << shift) - 1:
      raise ValueError(f"{name}: {value:#x} is no multiple of {1 << shift}")
    return f"_SHIFTED{shift}" if shift else "", shift

  def shifted(self, name: str, value: int) -> None:
    """Set a field that may be without its last bits: NAME, NAME_SHIFTED4, … Raises ValueError, OverflowError."""
    end, shift = self._shift(name, value)
    self[f"{name}{end}"] = value >> shift

  def address(self, name: str, address: int, index: int = 0) -> None:
    """Set an address in two halves, which may be without their last bits: NAME_LOWER and NAME_UPPER."""
    end, shift = self._shift(f"{name}_LOWER", address)
    self[f"{name}_LOWER{end}", index] = address >> shift & 0xFFFFFFFF
    self[f"{name}_UPPER{end}", index] = address >> shift + 32

  def __bytes__(self) -> bytes:
    return self.value.to_bytes(4 * self.layout.words, "little")
