"""NumPy's files: `.npy`, one array, and `.npz`, a zip archive of them (numpy.org, "numpy.lib.format").

The header is a Python literal; it is read as one and never evaluated. Arrays of objects are pickles: they are refused.
"""

import ast
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_tensor.io import files
from tiny_tensor.io.archives import ArchiveFile, zip_files
from tiny_tensor.io.numpy_pickles import NUMPY_DTYPES
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes

_MAGIC = b"\x93NUMPY"
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}
_ALIGNMENT = 64  # of the data, by the format
_LONGEST_HEADER = 10_000  # NumPy's limit: Python's parser is not made for hostile text


def npy_load(fn: str | Path) -> Tensor:
  """The array in a `.npy` file, as a view of the mapped file where it is little-endian and in C order.

  Raises ValueError, with the file and the offset, where it is truncated, longer than stated, or of other dtypes:
  objects (pickles), structures, text, complex numbers.
  """
  whole = files.map_file(fn)
  with files.valid(".npy", fn):
    return _array(ArchiveFile(0, files.whole_bytes(whole), whole))


def npz_load(fn: str | Path) -> dict[str, Tensor]:
  """The arrays in a `.npz` file by name: views of the mapped file, or unpacked where it is compressed. See npy_load."""
  whole = files.map_file(fn)
  with files.valid(".npz", fn):
    found = zip_files(whole)
    if wrong := [name for name in found if not name.endswith(".npy")]:
      raise ValueError(f"it has {wrong[0]!r}, expected files NAME.npy only")
    return {name.removesuffix(".npy"): _named(name, file) for name, file in found.items()}


def _named(name: str, file: ArchiveFile) -> Tensor:
  try:
    return _array(file)
  except ValueError as error:
    raise ValueError(f"{name!r} at byte {file.at}: {error}") from None


def _array(file: ArchiveFile) -> Tensor:
  """The array in a file."""
  size = len(file.data)
  head = bytes(file.data[:12])
  if head[:6] != _MAGIC or len(head) < 12:
    raise ValueError(f"at byte 0 begin {head[:8]!r}, expected {_MAGIC!r}, a version and a header")
  if head[6] not in (1, 2, 3):
    raise ValueError(f"it is of version {head[6]}.{head[7]} at byte 6, expected 1, 2 or 3")
  start = 10 if head[6] == 1 else 12
  length = int.from_bytes(head[8:start], "little")
  if length > min(size - start, _LONGEST_HEADER):
    raise ValueError(
      f"the header at byte {start} claims {length} bytes, of {size - start} that follow and {_LONGEST_HEADER} "
      "at most: the file is truncated or lies"
    )
  place = f"the header at byte {start}"
  descr, fortran, shape = _parse(bytes(file.data[start : start + length]), place)
  dtype = NUMPY_DTYPES.get(descr[1:]) if isinstance(descr, str) and descr[:1] in ("<", ">", "|", "=") else None
  if dtype is None:
    reason = "; objects are pickles, which could run anything" if isinstance(descr, str) and "O" in descr else ""
    raise ValueError(f"{place} has the dtype {files.short(descr)}, expected numbers: {', '.join(NUMPY_DTYPES)}{reason}")
  start += length
  expected = files.check_shape(place, shape) * dtype.itemsize
  if expected != size - start:
    raise ValueError(f"{dtype.name} of shape {shape} at byte {start} takes {expected} bytes, there are {size - start}")
  order = shape[::-1] if fortran else shape
  if descr[0] == ">" and dtype.itemsize > 1 and expected:
    data = files.in_memory(file.tensor(start, dtypes.uint8, (expected,)))
    t = data.reshape(-1, dtype.itemsize).flip(1).contiguous().bitcast(dtype).reshape(order)
  else:
    t = file.tensor(start, dtype, order)
  return files.in_memory(t).permute(*reversed(range(len(shape)))) if fortran and len(shape) > 1 else t


# as NumPy writes it, which is read without Python's parser
_USUAL = re.compile(
  rb"\{'descr': '([<>|=]\w{2,3})', 'fortran_order': (True|False), "
  rb"'shape': \(((?:(?:0|[1-9][0-9]{0,18}), ?)*(?:(?:0|[1-9][0-9]{0,18}))?)\), \}\s*",
  re.ASCII,
)


def _parse(text: bytes, place: str) -> tuple[Any, bool, tuple[int, ...]]:
  """(dtype, whether in Fortran's order, shape) of a header."""
  if (usual := _USUAL.fullmatch(text)) is not None and (not usual[3] or b"," in usual[3]):  # (3) is no tuple
    return usual[1].decode(), usual[2] == b"True", tuple([int(size) for size in usual[3].split(b",") if size.strip()])
  try:
    header = ast.literal_eval(text.decode("utf-8").strip())
  except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
    raise ValueError(f"{place} is no Python literal: {error}") from None
  if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
    raise ValueError(f"{place} must have descr, fortran_order and shape, got {files.short(header)}")
  shape, fortran = header["shape"], header["fortran_order"]
  if not files.are_sizes(shape):
    raise ValueError(f"{place} has the shape {files.short(shape)}, expected a tuple of numbers, 0 or more")
  if type(fortran) is not bool:
    raise ValueError(f"{place} has fortran_order {files.short(fortran)}, expected True or False")
  return header["descr"], fortran, shape


def _header(name: str, t: Tensor) -> bytes:
  if t.dtype not in _NAMES:
    raise TypeError(f"{name} is {t.dtype.name}, which NumPy lacks: cast it to float32, or save it with safe_save")
  order = "<" if t.dtype.itemsize > 1 else "|"
  text = repr({"descr": order + _NAMES[t.dtype], "fortran_order": False, "shape": files.known_shape(t)}).encode()
  length = -(-(10 + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT - 10
  return _MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


def npy_save(t: Tensor, fn: str | Path) -> None:
  """Writes a tensor to a `.npy` file, whole or not at all. Raises TypeError for bfloat16 and fp8, which NumPy lacks."""
  header = _header("the tensor", t)
  with files.saved_to(fn) as file:
    file.write(header)
    files.write_tensor(file, t)


def npz_save(tensors: Mapping[str, Tensor], fn: str | Path, compressed: bool = False) -> None:
  """Writes tensors to a `.npz` file by name, whole or not at all. TypeError for bfloat16 and fp8, which NumPy lacks."""
  headers = {name: _header(repr(name), t) for name, t in tensors.items()}
  how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
  with files.saved_to(fn) as file, zipfile.ZipFile(file, "w", how) as archive:
    for name, t in tensors.items():
      with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        member.write(headers[name])
        files.write_tensor(member, t)
