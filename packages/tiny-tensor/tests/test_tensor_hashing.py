"""keccak and hash, against hashlib."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, TinyJit, dtypes, vmap
from tiny_tensor.methods.hashing import VARIANTS


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def digest(name: str, data: bytes) -> bytes:
  """What hashlib makes of bytes."""
  sizes = {"shake_128": (16,), "shake_256": (32,)}
  return bytes(hashlib.new(name, data).digest(*sizes.get(name, ())))


def found(t: Tensor) -> bytes:
  assert t.dtype is dtypes.uint8 and t.ndim == 1
  return bytes(t.tolist())


@pytest.mark.parametrize("name", VARIANTS)
def test_keccak_is_that_of_hashlib(name: str) -> None:
  rate = VARIANTS[name][0]
  data = np.random.default_rng(0).integers(0, 256, 2 * rate, np.uint8).tobytes()
  # around the ends of blocks: the padding has all lengths from one byte to a whole block
  for length in (0, 7, rate - 2, rate - 1, rate, 2 * rate - 1):
    assert found(Tensor(data[:length]).keccak(name)) == digest(name, data[:length]), length


@given(st.binary(max_size=400), st.sampled_from(sorted(VARIANTS)))
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keccak_of_any_bytes(data: bytes, name: str) -> None:
  assert found(Tensor(data).keccak(name)) == digest(name, data)


def test_rate_and_suffix() -> None:
  assert found(Tensor(b"abc").keccak((136, 0x06))) == digest("sha3_256", b"abc") == found(Tensor(b"abc").keccak())
  # Keccak as it was before it became a standard: of nothing, from its authors' test vectors
  old = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
  assert found(Tensor(b"").keccak((136, 0x01))).hex() == old
  bad: list[Any] = ["md5", (200, 6), (12, 6), (0, 6), (136, 0), (136, 128)]
  for cfg in bad:
    with pytest.raises(ValueError, match="keccak"):
      Tensor(b"abc").keccak(cfg)
  with pytest.raises(ValueError, match="no axes"):
    Tensor(1).keccak()


def test_messages_side_by_side() -> None:
  rows = np.random.default_rng(1).integers(0, 256, (2, 3, 50), np.uint8)
  out = Tensor(rows).keccak("sha3_224")
  assert out.shape == (2, 3, 28)
  expected = [[list(digest("sha3_224", row.tobytes())) for row in plane] for plane in rows]
  assert out.tolist() == expected
  assert vmap(lambda t: t.keccak("sha3_224"))(Tensor(rows)).tolist() == expected
  assert Tensor(rows).transpose(0, 1).keccak("sha3_224").tolist() == np.array(expected).swapaxes(0, 1).tolist()
  assert Tensor(rows[:0]).keccak().shape == (0, 3, 32)


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.float16, np.bool_])
def test_bytes_of_elements(dtype: Any) -> None:
  array = np.arange(-3, 4).astype(dtype)
  assert found(Tensor(array).keccak()) == digest("sha3_256", array.tobytes())
  assert found(Tensor(array)[::2].keccak()) == digest("sha3_256", array[::2].tobytes())


def test_keccak_is_lazy_and_captured() -> None:
  step = TinyJit(lambda x: (x + 1).keccak().realize())
  for n in range(4):
    data = bytes([n, n + 1, n + 2])
    assert found(step(Tensor(data).realize())) == digest("sha3_256", bytes(b + 1 for b in data))
  assert len(Tensor(b"abc").realize().keccak().schedule()) <= 5


def tree(data: bytes) -> bytes:
  """What `hash` is, in words of hashlib."""
  while True:
    data += bytes(-len(data) % (1 << 20)) if data else bytes(1 << 20)
    for _ in range(2):
      data = b"".join(digest("shake_128", data[at : at + 4096]) for at in range(0, len(data), 4096))
    if len(data) == 16:
      return data


def test_hash_is_a_tree_of_digests() -> None:
  for data in (b"", b"abc", bytes(range(256)) * 17):
    assert found(Tensor(data).hash()) == tree(data)
  numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
  assert found(Tensor(numbers).hash()) == tree(numbers.tobytes()) != tree(numbers.T.tobytes())
  assert found(Tensor(2.5).hash()) == tree(np.float32(2.5).tobytes())


@pytest.mark.nightly
def test_hash_of_more_than_one_chunk() -> None:
  data = np.random.default_rng(2).integers(0, 256, (1 << 20) + 5000, np.uint8)
  with Context(DEVICE=""):
    assert found(Tensor(data).hash()) == tree(data.tobytes())
