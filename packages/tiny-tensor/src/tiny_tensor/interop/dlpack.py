"""DLPack 1.1: structures, capsules and their lifetime (https://dmlc.github.io/dlpack/latest/c_api.html).

`make_capsule` takes memory and how it is laid out; `open_capsule` gives the same of a capsule of someone else. Both
know nothing of tensors. A capsule owns a struct, and the struct what it points at, until its deleter is called: by
whoever took it out of the capsule (and renamed that), or by the capsule when nobody did.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from tiny_tensor.shapes import contiguous_strides
from tiny_uop import DType, dtypes
from tiny_uop.records import dataclass

CPU, EXTENSION = 1, 12
VERSION = (1, 1)
READ_ONLY, IS_COPIED = 1, 2
HOST_TYPES = {CPU: "CPU", 3: "pinned CUDA memory", 11: "pinned ROCm memory"}
KINDS = {"int": 0, "uint": 1, "float": 2}
CODES: dict[DType, int] = {d: KINDS.get(d.kind, 6) for d in dtypes.all}
CODES |= {dtypes.bfloat16: 4, dtypes.fp8e4m3: 10, dtypes.fp8e5m2: 12}
DTYPES = {(code, dtype.bits): dtype for dtype, code in CODES.items()}


class DLDevice(ctypes.Structure):
  """Where memory is."""

  _fields_ = (("device_type", c_int32), ("device_id", c_int32))


class DLDataType(ctypes.Structure):
  """What an element is."""

  _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(ctypes.Structure):
  """An array: strides count elements, and may be missing where it is contiguous."""

  _fields_ = (
    ("data", c_void_p),
    ("device", DLDevice),
    ("ndim", c_int32),
    ("dtype", DLDataType),
    ("shape", POINTER(c_int64)),
    ("strides", POINTER(c_int64)),
    ("byte_offset", c_uint64),
  )


class DLManagedTensor(ctypes.Structure):
  """An array with an owner, as before DLPack 1.0."""

  _fields_ = (("dl_tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", c_void_p))


class DLManagedTensorVersioned(ctypes.Structure):
  """An array with an owner, and flags."""

  _fields_ = (
    ("major", c_uint32),
    ("minor", c_uint32),
    ("manager_ctx", c_void_p),
    ("deleter", c_void_p),
    ("flags", c_uint64),
    ("dl_tensor", DLTensor),
  )


@dataclass(frozen=True)
class Layout:
  """Elements of host memory: the address of the first one, sizes and strides (in elements) of axes."""

  address: int
  dtype: DType
  shape: tuple[int, ...]
  strides: tuple[int, ...]
  read_only: bool = False
  is_copied: bool = False


Deleter = ctypes.CFUNCTYPE(None, c_void_p)
KINDS_OF_CAPSULE: dict[bytes, type[ctypes.Structure]] = {
  b"dltensor_versioned": DLManagedTensorVersioned,
  b"dltensor": DLManagedTensor,
}
USED = {name: c_char_p(b"used_" + name) for name in KINDS_OF_CAPSULE}
NAMES = {name: c_char_p(name) for name in KINDS_OF_CAPSULE}


def python_function(name: str, result: Any, *arguments: Any) -> Any:
  """A function of Python's C API."""
  return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


new_capsule = python_function("PyCapsule_New", ctypes.py_object, c_void_p, c_char_p, c_void_p)
# by address: in its destructor a capsule has no references left, and must not get one
is_capsule = python_function("PyCapsule_IsValid", c_int, c_void_p, c_char_p)
capsule_pointer = python_function("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)
rename_capsule = python_function("PyCapsule_SetName", c_int, ctypes.py_object, c_char_p)
get_buffer = python_function("PyObject_GetBuffer", c_int, ctypes.py_object, c_void_p, c_int)
release_buffer = python_function("PyBuffer_Release", None, c_void_p)
keep_forever = python_function("Py_IncRef", None, ctypes.py_object)

# What is out, by the address of its struct: the struct, its arrays, and the owner of the memory.
_exported: dict[int, tuple[Any, ...]] = {}


def delete_struct(address: int) -> None:
  """The deleter of every struct that is made here."""
  _exported.pop(address, None)


def destroy_capsule(capsule: int) -> None:
  """The destructor of every capsule: the struct goes with it unless someone took it."""
  for name, kind in KINDS_OF_CAPSULE.items():
    if is_capsule(capsule, NAMES[name]):
      call_deleter(kind, capsule_pointer(capsule, NAMES[name]))


delete, destroy = Deleter(delete_struct), Deleter(destroy_capsule)
# others may call them, and look at names, after this module is torn down
for needed in (delete, destroy, *USED.values(), *NAMES.values(), *KINDS_OF_CAPSULE):
  keep_forever(needed)


def call_deleter(kind: type[ctypes.Structure], address: int) -> None:
  """Let a struct's owner go."""
  struct: Any = kind.from_address(address)
  if struct.deleter:
    Deleter(struct.deleter)(address)


def address_of(view: memoryview) -> int:
  """Where bytes are; they may be read-only."""
  fields = (c_void_p * 16)()  # a Py_buffer, which begins with the address
  get_buffer(view, ctypes.addressof(fields), 0)
  try:
    return int(fields[0] or 0)
  finally:
    release_buffer(ctypes.addressof(fields))


def make_capsule(layout: Layout, owner: object, versioned: bool) -> object:
  """A capsule with an array in host memory, which holds `owner` until its deleter is called."""
  name = b"dltensor_versioned" if versioned else b"dltensor"
  struct: Any = KINDS_OF_CAPSULE[name]()
  ndim = len(layout.shape)
  shape, strides = (c_int64 * ndim)(*layout.shape), (c_int64 * ndim)(*layout.strides)
  tensor = struct.dl_tensor
  tensor.data, tensor.byte_offset = layout.address, 0
  tensor.device = DLDevice(CPU, 0)
  tensor.dtype = DLDataType(CODES[layout.dtype], layout.dtype.bits, 1)
  tensor.ndim = ndim
  tensor.shape, tensor.strides = ctypes.cast(shape, POINTER(c_int64)), ctypes.cast(strides, POINTER(c_int64))
  struct.deleter = ctypes.cast(delete, c_void_p).value
  if versioned:
    struct.major, struct.minor = VERSION
    struct.flags = READ_ONLY * layout.read_only | IS_COPIED * layout.is_copied
  address = ctypes.addressof(struct)
  _exported[address] = (struct, shape, strides, owner)
  try:
    return new_capsule(address, NAMES[name], ctypes.cast(destroy, c_void_p).value)
  except BaseException:
    del _exported[address]
    raise


class Taken:
  """A struct taken out of a capsule: what it points at lives until this goes."""

  def __init__(self, kind: type[ctypes.Structure], address: int) -> None:
    self.kind, self.address = kind, address

  def __del__(self, call: Callable[[type[ctypes.Structure], int], None] = call_deleter) -> None:
    call(self.kind, self.address)


def open_capsule(capsule: object) -> tuple[Layout, Taken]:
  """What a capsule has, and its owner. Raises BufferError for another version, a device that is not the host's, and
  types that no tensor has; TypeError for what is no fresh capsule."""
  name = next((name for name in KINDS_OF_CAPSULE if is_capsule(id(capsule), NAMES[name])), None)
  if name is None:
    raise TypeError(f"__dlpack__ gave {capsule!r}: expected a DLPack capsule that nobody has used")
  kind = KINDS_OF_CAPSULE[name]
  address = capsule_pointer(id(capsule), NAMES[name])
  rename_capsule(capsule, USED[name])
  taken = Taken(kind, address)
  struct: Any = kind.from_address(address)
  if name == b"dltensor_versioned" and struct.major != VERSION[0]:
    raise BufferError(f"DLPack {struct.major}.{struct.minor} is not understood, only {VERSION[0]}.x")
  flags = struct.flags if name == b"dltensor_versioned" else 0
  return layout_of(struct.dl_tensor, flags), taken


def layout_of(tensor: Any, flags: int) -> Layout:
  """What a DLTensor says, checked."""
  if tensor.device.device_type not in HOST_TYPES:
    raise BufferError(f"DLPack device type {tensor.device.device_type} is not memory of the host: copy it there first")
  kind = (tensor.dtype.code, tensor.dtype.bits)
  if kind not in DTYPES or tensor.dtype.lanes != 1:
    raise BufferError(f"no tensor dtype for DLPack's (code, bits) {kind} with {tensor.dtype.lanes} lanes")
  shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
  strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else contiguous_strides(shape)
  address = (tensor.data or 0) + tensor.byte_offset
  return Layout(address, DTYPES[kind], shape, strides, bool(flags & READ_ONLY), bool(flags & IS_COPIED))
