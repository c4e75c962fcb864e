"""The linker, the reader of code objects, and of MessagePack."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from amd_code import compiled

from tiny_runtime.conformance.standard import elementwise
from tiny_runtime.llvm import compile_object
from tiny_runtime_amd import ARCHS, Arch, CodeObject, ElfError, link
from tiny_runtime_amd.elf import HEADER, RELOCATABLE, SEGMENT, Elf
from tiny_runtime_amd.msgpack import unpack
from tiny_uop import dtypes

# a table in memory, which code reaches by its distance, and a second kernel
TABLE = """
@table = internal unnamed_addrspace constant [8 x i32] [i32 3, i32 1, i32 4, i32 1, i32 5, i32 9, i32 2, i32 6]
define amdgpu_kernel void @first(ptr addrspace(1) %out, i32 %n) {
  %place = getelementptr [8 x i32], ptr addrspace(4) @table, i32 0, i32 %n
  %value = load i32, ptr addrspace(4) %place
  store i32 %value, ptr addrspace(1) %out
  ret void
}
define amdgpu_kernel void @second(ptr addrspace(1) %out) {
  store i32 7, ptr addrspace(1) %out
  ret void
}
""".replace("unnamed_addrspace", "unnamed_addr addrspace(4)")


@pytest.mark.parametrize("arch", ARCHS, ids=str)
def test_kernels_and_their_constants(arch: Arch) -> None:
  """The distance that the code adds to its own address leads to the table."""
  given = compile_object(TABLE, arch.processor)
  relocations = [r for r in Elf.parse(given).relocations if r.type in (4, 10, 11)]
  code = CodeObject.parse(link(given))
  assert sorted(code.kernels) == ["first", "second"]
  where = code.image.index(struct.pack("<8I", 3, 1, 4, 1, 5, 9, 2, 6))
  low = min((r for r in relocations if r.type in (4, 10)), key=lambda r: r.offset)
  text = code.kernels["first"].entry - next(s.value for s in Elf.parse(given).symbols if s.name == "first")
  place = text + low.offset
  distance = struct.unpack_from("<I", code.image, place)[0]
  assert (place - low.addend + distance) & 0xFFFFFFFF == where + low.symbol.value
  for high in [r for r in relocations if r.type == 11]:
    assert struct.unpack_from("<i", code.image, text + high.offset)[0] in (0, -1)


@pytest.mark.parametrize("arch", ARCHS, ids=str)
def test_segments_are_what_a_loader_maps(arch: Arch) -> None:
  file = compiled(elementwise(256, dtypes.float32), arch.name).code
  header = HEADER.unpack_from(file)
  segments = [SEGMENT.unpack_from(file, header[5] + n * SEGMENT.size) for n in range(header[10])]
  image = CodeObject.parse(file).image
  loads = [s for s in segments if s[0] == 1]
  assert [rights for _, rights, *_ in loads] == [4, 5]
  for _, _, offset, address, _, size, memory, align in loads:
    assert offset % align == address % align and size == memory
    assert image[address : address + size] == file[offset : offset + size] or address == 0
  assert loads[0][3] + loads[0][6] <= loads[1][3] // 0x1000 * 0x1000, "no page is both to read and to run"


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("@v = addrspace(1) global i32 0\ndefine amdgpu_kernel void @k() {\n store i32 1, ptr addrspace(1) @v\n ret void }",
     "relocation of type|writable"),
    ("declare void @f()\ndefine amdgpu_kernel void @k() {\n call void @f()\n ret void\n}", "of type|not defined"),
  ],
)  # fmt: skip
def test_what_no_kernel_has_is_refused(text: str, message: str) -> None:
  with pytest.raises(ElfError, match=message):
    link(compile_object(text, ARCHS[0].processor))


@pytest.mark.parametrize("code", [b"", b"\x7fELF\x01\x01" + bytes(80), b"\x7fELF\x02\x01" + bytes(80)])
def test_other_files_are_refused(code: bytes) -> None:
  with pytest.raises(ElfError, match="no ELF file of 64 bits|for machine 0"):
    link(code)


def test_only_what_has_not_been_linked_is_linked() -> None:
  file = compiled(elementwise(256, dtypes.float32), "gfx1100").code
  with pytest.raises(ElfError, match=f"expected a relocatable one .{RELOCATABLE}."):
    link(file)
  with pytest.raises(ElfError, match="expected one that has been linked"):
    CodeObject.parse(compile_object(TABLE, ARCHS[0].processor))
  with pytest.raises(ElfError, match="section headers"):
    CodeObject.parse(file[:-1])


def test_metadata_of_a_kernel_that_is_not_there() -> None:
  code = CodeObject.parse(compiled(elementwise(256, dtypes.float32), "gfx1100").code)
  assert code.about("elementwise")["kernarg_segment_size"] == 32
  with pytest.raises(KeyError, match="there is no kernel 'other': there are elementwise"):
    code.about("other")


@pytest.mark.parametrize(
  ("data", "value"),
  [
    ("c0", None), ("c2", False), ("c3", True), ("7f", 127), ("e0", -32), ("ff", -1), ("cc80", 128), ("cd0100", 256),
    ("ce00010000", 65536), ("d0df", -33), ("d1ff00", -256), ("cb3ff8000000000000", 1.5), ("a3616263", "abc"),
    ("d903c3a961", "éa"), ("93010203", [1, 2, 3]), ("dc000101", [1]), ("82a16101a162c2", {"a": 1, "b": False}),
    ("de0001a16180", {"a": {}}), ("90", []),
  ],
)  # fmt: skip
def test_messagepack(data: str, value: Any) -> None:
  """The examples are those of the format's specification."""
  assert unpack(bytes.fromhex(data)) == value


@pytest.mark.parametrize("data", ["", "a261", "92c0", "cd01", "c1", "c403010203", "c0c0"])
def test_messagepack_that_is_cut_off_or_unknown(data: str) -> None:
  with pytest.raises(ValueError, match="end in the middle|left behind|do not have"):
    unpack(bytes.fromhex(data))
