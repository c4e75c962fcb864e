"""`Binary`: a compiled kernel with all that is needed to launch it, and its form as bytes for the disk cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import overload

from tiny_runtime.errors import CompileError
from tiny_uop import NativeCode, ParamInfo, ProgramInfo, PtrDType, UOp, dtypes
from tiny_uop.evaluate import evaluator
from tiny_uop.records import dataclass
from tiny_uop.text.print import print_uop

IR_ONLY = "kernels in the IR only"
Sizes = tuple[tuple[int, ...], tuple[int, ...], int, int]
"""Of a launch: global size, local size, operations and bytes."""


class _Text:
  """A field of text that may be given compressed: a program has hundreds of kernels, and hardly anybody asks for their
  text, which is most of what they are."""

  @overload
  def __get__(self, record: None, owner: type) -> str: ...
  @overload
  def __get__(self, record: object, owner: type) -> str: ...
  def __get__(self, record: object | None, owner: type) -> str:
    if record is None:
      return ""
    found: str | bytes = record.__dict__["_text"]
    if isinstance(found, str):
      return found
    import zlib

    return zlib.decompress(found).decode()

  def __set__(self, record: object, value: str | bytes) -> None:
    record.__dict__["_text"] = value


@dataclass(frozen=True)
class Binary:
  """A compiled kernel. Plain data, so it can be cached on disk and sent between processes."""

  code: bytes
  """What `Device.load` takes: machine code, an object file, bytecode."""
  entry: str
  """Name of the function in `code`; also the kernel's name in reports."""
  global_size: tuple[UOp, ...]
  """Launch grid: index expressions over the kernel's variables."""
  local_size: tuple[UOp, ...]
  """Workgroup size: index expressions over the kernel's variables."""
  params: tuple[ParamInfo, ...]
  """The buffers in launch order. `slot` is the PARAM number in the kernel, and so the argument's position in the
  CALL."""
  variables: tuple[str, ...]
  """Names of the integers that `launch` takes, in order."""
  ops: UOp
  """Estimate of arithmetic operations of one launch: index expression."""
  nbytes: UOp
  """Estimate of bytes of memory touched by one launch: index expression."""
  source: _Text = _Text()
  """Program text for people, str: shown with DEBUG=4 and in errors."""

  @classmethod
  def of(cls, program: UOp, code: bytes, entry: str = "") -> Binary:
    """The binary of a PROGRAM, as tiny-codegen gives it, that was made into `code`. `entry`: its name there, if it is
    not the kernel's."""
    _, _, source, grid, group, estimates = program.src
    info: ProgramInfo = program.arg
    ops, nbytes = estimates.src[:2]
    name = entry or info.name
    return cls(code, name, grid.src, group.src, info.params, info.variables, ops, nbytes, str(source.arg))

  @classmethod
  def of_native(cls, kernel: UOp, code: bytes) -> Binary:
    """The binary of a kernel that is one NATIVE, whose program was made into `code`, or is that already."""
    (native,) = kernel.src
    given: NativeCode = native.arg
    grid, group = (
      tuple([UOp.const(dtypes.index, s) for s in (*sizes, 1, 1)[:3]]) for sizes in (given.groups, given.threads)
    )
    params = []
    for n, param in enumerate(native.src):
      assert isinstance(param.dtype, PtrDType)
      written = n in given.written
      params.append(ParamInfo(param.arg, param.dtype.base, param.dtype.size, written, not written))
    ops, nbytes = (UOp.const(dtypes.index, n) for n in (given.ops, sum(p.size * p.dtype.itemsize for p in params)))
    return cls(code, given.entry, grid, group, tuple(params), (), ops, nbytes, given.source or given.code)

  def native(self, form: str, arch: str) -> NativeCode:
    """The program by itself, for a kernel that is one NATIVE: of `form`, made for `arch`. Its sizes are numbers, and it
    takes no integers."""
    groups, threads, ops, _ = self.sizes({})
    written = tuple([n for n, p in enumerate(self.params) if p.written])
    return NativeCode(form, arch, self.code.decode("latin-1"), self.entry, groups, threads, written, ops, self.source)

  def sizes(self, values: Mapping[str, int]) -> Sizes:
    """Global size, local size, operations and bytes of a launch, for these values of the variables."""
    return self.sizes_by_values()(values)

  def sizes_by_values(self) -> Callable[[Mapping[str, int]], Sizes]:
    """`sizes` as a function, which is faster from the second time on."""
    split, numbers = len(self.global_size), evaluator((*self.global_size, *self.local_size, self.ops, self.nbytes))

    def sizes(values: Mapping[str, int]) -> Sizes:
      *found, ops, nbytes = map(int, numbers(values))
      return tuple(found[:split]), tuple(found[split:]), ops, nbytes

    return sizes

  def to_bytes(self) -> bytes:
    """Serialise without pickle: one line of JSON (expressions in the textual form of the IR), then the code, then the
    compressed text."""
    import json  # late: who only builds graphs has no binaries
    import zlib

    header = {
      "entry": self.entry,
      "global_size": [print_uop(u) for u in self.global_size],
      "local_size": [print_uop(u) for u in self.local_size],
      "params": [[p.slot, p.dtype.name, p.size, p.written, p.read] for p in self.params],
      "variables": list(self.variables),
      "ops": print_uop(self.ops),
      "nbytes": print_uop(self.nbytes),
      "code": len(self.code),
    }
    return json.dumps(header).encode() + b"\n" + self.code + zlib.compress(self.source.encode(), 1)

  @classmethod
  def from_bytes(cls, data: bytes) -> Binary:
    """The inverse of `to_bytes`. Raises ValueError if `data` is not one."""
    import json

    from tiny_uop.text.parse import parse_uop

    line, newline, rest = data.partition(b"\n")
    if not newline:
      raise ValueError("not a serialised Binary: no header line")
    try:
      header = json.loads(line)
      grid, group = (tuple([parse_uop(text) for text in header[name]]) for name in ("global_size", "local_size"))
      params = tuple([ParamInfo(slot, dtypes.parse(name), *uses) for slot, name, *uses in header["params"]])
      ops, nbytes = parse_uop(header["ops"]), parse_uop(header["nbytes"])
      entry, variables, size = header["entry"], tuple(header["variables"]), header["code"]
      if len(rest) < size:
        raise ValueError(f"not a serialised Binary: {len(rest)} bytes behind the header, expected {size} of code")
      return cls(rest[:size], entry, grid, group, params, variables, ops, nbytes, rest[size:])
    except (KeyError, TypeError, AttributeError) as error:
      raise ValueError(f"not a serialised Binary: {type(error).__name__}: {error}") from error


def not_for(program: NativeCode, taken: str) -> CompileError:
  """That a device does not run a program from elsewhere; `taken` is what it runs."""
  return CompileError(
    f"program {program.entry!r} is {program.form} for {program.arch}; this device takes {taken}", program.source
  )
