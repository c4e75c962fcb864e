"""GGUF files: every format against a reference that takes it apart number by number, and headers that lie."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ggml_reference as reference
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, dtypes
from tiny_tensor.nn.state import ggml_data_to_tensor, gguf_load


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


KINDS = sorted(reference.BLOCKS)


@pytest.mark.parametrize("kind", KINDS, ids=[reference.BLOCKS[k][0] for k in KINDS])
def test_every_quantised_format(kind: int) -> None:
  data, expected = reference.random_blocks(kind, 3)
  found = ggml_data_to_tensor(Tensor(data), len(expected), kind)
  assert (found.dtype, found.shape) == (dtypes.float32, expected.shape)
  np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-5 if kind != 39 else 0)


@pytest.mark.parametrize(
  ("kind", "dtype", "data", "expected"),
  [
    (0, dtypes.float32, struct.pack("<2f", 1.5, -2), [1.5, -2]),
    (1, dtypes.float16, struct.pack("<2e", 1.5, -2), [1.5, -2]),
    (30, dtypes.bfloat16, b"\xc0\x3f\x00\xc0", [1.5, -2]),
    (28, dtypes.float64, struct.pack("<2d", 0.1, -2), [0.1, -2]),
    (24, dtypes.int8, b"\x03\xff", [3, -1]),
    (25, dtypes.int16, struct.pack("<2h", 300, -1), [300, -1]),
    (26, dtypes.int32, struct.pack("<2i", 1 << 20, -1), [1 << 20, -1]),
    (27, dtypes.int64, struct.pack("<2q", 1 << 40, -1), [1 << 40, -1]),
  ],
)
def test_plain_numbers(kind: int, dtype: Any, data: bytes, expected: list[Any]) -> None:
  found = ggml_data_to_tensor(Tensor(data), 2, kind)
  assert (found.dtype, found.tolist()) == (dtype, expected)


@pytest.mark.parametrize(
  ("size", "n", "kind", "message"),
  [
    (17, 32, 2, "takes 18 bytes, there are 17"),
    (18, 31, 2, "blocks of 32"),
    (66, 256, 31, "Q4_0_4_4"),
    (66, 256, 41, "Q1_0"),
    (66, 256, 99, "unknown"),
  ],
)
def test_data_that_does_not_fit(size: int, n: int, kind: int, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    ggml_data_to_tensor(Tensor(bytes(size)), n, kind)


def text(value: str) -> bytes:
  return struct.pack("<Q", len(value.encode())) + value.encode()


def entry(key: str, kind: int, value: bytes) -> bytes:
  return text(key) + struct.pack("<I", kind) + value


def info(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
  return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, offset)


def gguf(
  infos: list[bytes], data: bytes, entries: tuple[bytes, ...] = (), version: int = 3, alignment: int = 32
) -> bytes:
  head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(entries)) + b"".join(entries) + b"".join(infos)
  return head + bytes(-len(head) % alignment) + data


FLOATS = struct.pack("<6f", 0, 1, 2, 3, 4, 5)
ENTRIES = (
  entry("u8", 0, b"\xff"), entry("i8", 1, b"\xff"), entry("u16", 2, b"\xff\xff"), entry("i16", 3, b"\xff\xff"),
  entry("u32", 4, b"\xff" * 4), entry("i32", 5, b"\xff" * 4), entry("f32", 6, struct.pack("<f", 0.5)),
  entry("yes", 7, b"\1"), entry("text", 8, text("grüß")), entry("u64", 10, b"\xff" * 8), entry("i64", 11, b"\xff" * 8),
  entry("f64", 12, struct.pack("<d", 0.1)), entry("numbers", 9, struct.pack("<IQ2h", 3, 2, -1, 7)),
  entry("texts", 9, struct.pack("<IQ", 8, 2) + text("a") + text("")),
  entry("nested", 9, struct.pack("<IQ", 9, 2) + struct.pack("<IQ2B", 0, 2, 1, 2) + struct.pack("<IQ", 8, 0)),
)  # fmt: skip


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mapped", [True, False])
def test_a_whole_file(tmp_path: Path, version: int, mapped: bool) -> None:
  quantised, expected = reference.random_blocks(8, 2)
  infos = [info("q", (2, 32), 8, 32), info("a", (2, 3), 0, 0), info("scalar", (), 0, 128), info("none", (0, 3), 0, 160)]
  content = gguf(infos, (FLOATS + bytes(8) + quantised).ljust(128, b"\0") + FLOATS[4:8], ENTRIES, version)
  path = tmp_path / "a.gguf"
  path.write_bytes(content + bytes(28))
  metadata, tensors = gguf_load(path if mapped else Tensor(path.read_bytes()))
  assert metadata == {
    "u8": 255, "i8": -1, "u16": 65535, "i16": -1, "u32": (1 << 32) - 1, "i32": -1, "f32": 0.5, "yes": True,
    "text": "grüß", "u64": (1 << 64) - 1, "i64": -1, "f64": 0.1, "numbers": [-1, 7], "texts": ["a", ""],
    "nested": [[1, 2], []],
  }  # fmt: skip
  assert list(tensors) == ["q", "a", "scalar", "none"]
  assert tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
  assert (tensors["scalar"].tolist(), tensors["none"].shape) == (1, (0, 3))
  np.testing.assert_allclose(tensors["q"].numpy(), expected.reshape(2, 32), rtol=1e-6)
  if mapped:
    assert str(tensors["a"].device).startswith("DISK:")


def test_alignment_is_what_the_file_says() -> None:
  aligned = entry("general.alignment", 4, struct.pack("<I", 8))
  content = gguf([info("a", (2,), 0, 0), info("b", (3,), 0, 8)], FLOATS[:20], (aligned,), alignment=8)
  assert gguf_load(Tensor(content))[1]["b"].tolist() == [2, 3, 4]


A = info("a", (2, 3), 0, 0)
LIES = [
  ("empty", b"", "magic number at byte 0"),
  ("another format", b"PK\x03\x04" + bytes(40), "PK"),
  ("version 1", gguf([A], FLOATS, version=1), "version 1"),
  ("big-endian", gguf([A], FLOATS, version=3 << 24), "big-endian"),
  ("counts", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60), "do not fit"),
  ("long name", gguf([struct.pack("<Q", 1 << 62) + b"a" * 40], b""), "name of a tensor at byte 32 takes"),
  ("long array", gguf([], b"", (entry("k", 9, struct.pack("<IQ", 0, 1 << 62)),)), "'k' at byte"),
  ("long array of texts", gguf([], b"", (entry("k", 9, struct.pack("<IQ", 8, 1 << 40)),)), "more than fit"),
  ("unknown type", gguf([], b"", (entry("k", 13, b""),)), "unknown type 13"),
  ("arrays without end", gguf([], b"", (entry("k", 9, struct.pack("<IQ", 9, 1) * 20),)), "too deep"),
  ("no bool", gguf([], b"", (entry("k", 7, b"\2"),)), "a bool is 0 or 1"),
  ("no text", gguf([], b"", (entry("k", 8, struct.pack("<Q", 1) + b"\xff"),)), "'k' at byte .*UTF-8"),
  ("key twice", gguf([], b"", (entry("k", 0, b"\1"), entry("k", 0, b"\1"))), "'k' at byte .*twice"),
  ("tensor twice", gguf([A, info("a", (2,), 0, 32)], FLOATS + bytes(40)), "'a' occurs twice"),
  ("five axes", gguf([info("a", (1, 1, 1, 1, 1), 0, 0)], FLOATS), "5 axes"),
  ("unknown format", gguf([info("a", (2, 3), 77, 0)], FLOATS), "77"),
  ("format not read", gguf([info("a", (1, 128), 41, 0)], bytes(98)), "Q1_0"),
  ("half a block", gguf([info("a", (2, 48), 2, 0)], bytes(54)), "'a' of Q4_0 has shape"),
  ("unaligned", gguf([info("a", (2,), 0, 4)], FLOATS), "not aligned to 32"),
  ("truncated", gguf([A], FLOATS[:-1]), "'a' ends at byte .*truncated"),
  ("huge", gguf([info("a", (1 << 63, 1 << 63), 0, 0)], FLOATS), "'a' ends at byte"),
  ("far", gguf([info("a", (2,), 0, 1 << 40)], FLOATS), "'a' ends at byte"),
  ("overlap", gguf([A, info("b", (2,), 0, 0)], FLOATS), "before 'b' ends"),
  ("alignment", gguf([A], FLOATS, (entry("general.alignment", 4, struct.pack("<I", 12)),)), "power of two"),
  ("alignment is text", gguf([A], FLOATS, (entry("general.alignment", 8, text("32")),)), "power of two"),
]


@pytest.mark.parametrize(("content", "message"), [x[1:] for x in LIES], ids=[x[0] for x in LIES])
def test_headers_that_lie(tmp_path: Path, content: bytes, message: str) -> None:
  path = tmp_path / "broken.gguf"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message) as caught:
    gguf_load(path)
  assert "broken.gguf" in str(caught.value)


def test_every_truncation_is_an_error(tmp_path: Path) -> None:
  content = gguf([A], FLOATS, ENTRIES)
  path = tmp_path / "a.gguf"
  for length in range(0, len(content), 5):
    path.write_bytes(content[:length])
    with pytest.raises(ValueError, match=r"a\.gguf"):
      gguf_load(path)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_are_errors_or_tensors(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
  path = tmp_path / "a.gguf"
  content = bytearray(gguf([A, info("q", (1, 32), 2, 32)], FLOATS + bytes(8 + 18), ENTRIES[::4]))
  for at, byte in changes:
    content[at % len(content)] = byte
  path.write_bytes(content)
  try:
    gguf_load(path)
  except ValueError as error:
    assert "a.gguf" in str(error)
