"""`__array_namespace_info__`: capabilities, devices and data types of the namespace."""

from __future__ import annotations

from tiny_runtime import Device
from tiny_runtime.plugins.discovery import plugins
from tiny_runtime.plugins.plugin import State
from tiny_tensor.array_api.data_types import KINDS
from tiny_uop import DType, dtypes

__all__ = ["__array_namespace_info__"]

# what the standard has; float16 and its like are more
STANDARD = (dtypes.bool, *dtypes.sints, *dtypes.uints, dtypes.float32, dtypes.float64)


class __array_namespace_info__:
  """The standard's inspection of capabilities, devices and data types."""

  def capabilities(self) -> dict[str, bool | int | None]:
    """Masks and shapes that depend on values work; there is no limit to the number of axes."""
    return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

  def default_device(self) -> str:
    """The device of arrays for which none is named."""
    return Device.DEFAULT

  def devices(self) -> list[str]:
    """The devices that can be used now, the default one first."""
    ready = [p for p in plugins().values() if p.probe() is State.READY]
    found = [Device.canonicalize(f"{p.name}:{i}") for p in ready for i in range(len(p.archs))]
    return sorted(found, key=lambda name: name != Device.DEFAULT)

  def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
    """float32, and int32 for integers and positions. There are no complex numbers."""
    return {"real floating": dtypes.default_float, "integral": dtypes.default_int, "indexing": dtypes.default_int}

  def dtypes(self, *, device: str | None = None, kind: str | tuple[str, ...] | None = None) -> dict[str, DType]:
    """The data types of the standard by name; of one kind, or of several. Raises ValueError for other kinds."""
    kinds = (kind,) if isinstance(kind, str) else kind
    unknown = [k for k in kinds or () if k not in KINDS]
    if unknown:
      raise ValueError(f"unknown kind {unknown[0]!r}: expected one of {', '.join(KINDS)}")
    return {d.name: d for d in STANDARD if kinds is None or any(d in KINDS[k] for k in kinds)}
