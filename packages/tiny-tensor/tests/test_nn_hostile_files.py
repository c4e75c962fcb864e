"""Files of untrusted origin take time in proportion to their bytes; what is wrong with them is a ValueError."""

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_files import (
  FAMILIES,
  PICKLES,
  READERS,
  checkpoint,
  collisions,
  dictionary,
  gguf,
  integer,
  name,
  npy,
  npz,
  safetensors,
  small_tensors,
  text,
  tuples,
)

from tiny_tensor import Context


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def seconds(reader: str, content: bytes, folder: Path) -> float:
  """Processor time of the reader, the least of two runs."""
  taken = []
  for _ in range(2):
    start = time.process_time()
    try:
      READERS[reader](content, folder)
    except ValueError:
      pass
    taken.append(time.process_time() - start)
  return min(taken)


@pytest.mark.parametrize("family", FAMILIES)
def test_time_is_linear_in_bytes(family: str, tmp_path: Path) -> None:
  """Four times as many of something may take eight times as long: what is quadratic takes sixteen times as long."""
  reader, n, make = FAMILIES[family]
  once, more = make(n), make(4 * n)
  before = seconds(reader, once, tmp_path)
  assert seconds(reader, more, tmp_path) <= 8 * before + 0.05


def calls(reader: str, content: bytes, folder: Path) -> int:
  """Calls of functions, Python's own among them, that reading takes."""
  count = 0

  def note(frame: Any, event: str, argument: Any) -> None:
    nonlocal count
    count += event in ("call", "c_call")

  sys.setprofile(note)
  try:
    READERS[reader](content, folder)
  finally:
    sys.setprofile(None)
  return count


@pytest.mark.parametrize(("reader", "make", "most"), [("safetensors", small_tensors, 80), ("npz", npz, 180)])
def test_a_tensor_takes_few_calls(reader: str, make: Callable[[int], bytes], most: int, tmp_path: Path) -> None:
  """A model has thousands of tensors: 56 and 126 calls take 12 and 26 microseconds."""
  few, many = (calls(reader, make(n), tmp_path) for n in (50, 250))
  assert (many - few) / 200 <= most


# *** keys and copies ***


def loaded(operations: bytes, folder: Path) -> Any:
  return READERS["torch"](checkpoint(operations), folder)


@pytest.mark.parametrize(
  "keys",
  [
    list(range(100_000)),
    list(range(80_000))[::-1],
    [140_000_000_000_000 + 64 * i for i in range(20_000)],  # addresses: what optimisers wrote once
    [-i for i in range(20_000)],
    [f"{i}" for i in range(20_000)],
    [(f"{i}", f"{i + 1}") for i in range(10_000)],
    [(i // 100, i % 100) for i in range(20_000)],
    [i / 7 for i in range(4_000)],
    [None, True, 3, b"x", 1.5, "text", ("a", 1, None, 2.5), 1 << 100],
  ],
  ids=["counting", "downwards", "addresses", "negative", "text", "pairs of text", "pairs", "floats", "of each"],
)
def test_keys_that_programs_have(keys: list[Any], tmp_path: Path) -> None:
  expected = dict.fromkeys(keys, 1)
  assert loaded(pickle.dumps(expected, 2)[2:-1], tmp_path) == expected
  assert loaded(pickle.dumps(set(keys), 4)[2:-1], tmp_path) == set(keys)


@pytest.mark.parametrize("keys", [tuples(5000), collisions(5000)], ids=["tuples", "integers"])
def test_keys_whose_hashes_are_chosen(keys: list[bytes], tmp_path: Path) -> None:
  assert len(loaded(dictionary(keys[:4000]), tmp_path)) == 4000
  with pytest.raises(ValueError, match=r"byte .* more than 4096 are floats, large integers or tuples: .* use text"):
    loaded(dictionary(keys), tmp_path)


@pytest.mark.parametrize("use", [use for use in PICKLES if "again and again" in use and "size" not in use])
def test_values_that_are_copied_again_and_again(use: str, tmp_path: Path) -> None:
  n, make = PICKLES[use]
  with pytest.raises(ValueError, match=r"REDUCE at byte .*uses values again and again, \d+ bytes"):
    loaded(make(4 * n), tmp_path)


def test_values_that_are_shared_are_no_copies(tmp_path: Path) -> None:
  shared = {"a": list(range(1000))}
  found = loaded(pickle.dumps([shared] * 1000, 2)[2:-1], tmp_path)
  assert len(found) == 1000 and all(part is found[0] for part in found)


# *** shapes ***


def shaped(shape: tuple[int, ...]) -> dict[str, tuple[str, bytes]]:
  """A file of each format with one array of this shape, which has no elements."""
  named = ",".join(map(str, shape))
  header = f'{{"t":{{"dtype":"F32","shape":[{named}],"data_offsets":[0,0]}}}}'
  sizes = b"(" + b"".join(integer(size) for size in shape) + b"t"
  strides = b"(" + integer(1) * len(shape) + b"t"
  storage = b"(" + text("storage") + name("torch", "FloatStorage") + text("0") + text("cpu") + integer(4) + b"tQ"
  files = {
    "safetensors": ("safetensors", safetensors(header.encode())),
    "npy": ("npy", npy(f"({named},)")),
    "torch": (
      "torch",
      checkpoint(name("torch._utils", "_rebuild_tensor") + b"(" + storage + b"K\x00" + sizes + strides + b"tR"),
    ),
    "numpy in torch": (
      "torch",
      checkpoint(
        name("numpy._core.numeric", "_frombuffer") + b"(" + pickle.dumps(b"", 4)[2:-1] + name("numpy", "dtype")
        + text("f4") + b"\x85R" + sizes + text("C") + b"tR"
      ),
    ),
  }  # fmt: skip
  if len(shape) <= 4 and max(shape) < 1 << 64:
    files["gguf"] = ("gguf", gguf([("t", shape[::-1])]))
  if len(shape) < 256 and max(shape) < 1 << 32:
    head = bytes((0, 0, 8, len(shape)))
    files["idx"] = ("idx", head + b"".join(size.to_bytes(4, "big") for size in shape))
  return files


@pytest.mark.parametrize(
  ("shape", "message"),
  [
    (((1 << 64) - 1, 0), "18446744073709551615"),
    ((0, (1 << 64) - 1), "18446744073709551615"),
    ((1 << 20, 1 << 20, 0), "1099511627776 rows"),
    (((1 << 32) - 1, 0), "4294967295 rows"),
    ((1,) * 254 + (0,), "255 axes, expected 64 at most|64 at most"),
    ((1,) * 5000 + (0,), "5001 axes, expected 64 at most|claims .* at most|64 at most"),
  ],
  ids=["many rows", "long rows", "rows of rows", "32 bits", "255 axes", "5001 axes"],
)
def test_shapes_that_need_no_bytes(shape: tuple[int, ...], message: str, tmp_path: Path) -> None:
  for reader, content in shaped(shape).values():
    with pytest.raises(ValueError, match=message):
      READERS[reader](content, tmp_path)


@pytest.mark.parametrize(
  "shape", [(0,), (3, 0), (0, 1 << 20), (2, 0, 5), (1,) * 3 + (0,), (1,) * 63 + (0,), (100_000, 0)]
)
def test_shapes_without_elements(shape: tuple[int, ...], tmp_path: Path) -> None:
  for reader, content in shaped(shape).values():
    found = READERS[reader](content, tmp_path)
    if isinstance(found, tuple):
      found = found[1]
    tensor = found["t"] if isinstance(found, dict) else found
    assert tensor.shape == shape and isinstance(tensor.tolist(), list)


# *** what is damaged ***

LIMITED = """
import random, resource, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from hostile_files import READERS, valid_files
from tiny_tensor import Context, Tensor

resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
folder, draw, done = Path({folder!r}), random.Random({seed}), dict.fromkeys(READERS, 0)

def look(value, depth=0):
  if isinstance(value, Tensor):
    assert len(value.shape) <= 64
    if value.numel() <= 64: value.tolist()
  elif isinstance(value, dict) and depth < 4:
    for part in value.values(): look(part, depth + 1)
  elif isinstance(value, (list, tuple)) and depth < 4:
    for part in value: look(part, depth + 1)

def changed(content, others):
  content = bytearray(content)
  for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
    at, size = draw.randrange(len(content) + 1), draw.choice((1, 1, 2, 4, 8, 64))
    match draw.randrange(7):
      case 0: del content[at:]
      case 1: del content[at : at + size]
      case 2: content[at : at + size] = draw.randbytes(size)
      case 3 if at < len(content): content[at] ^= 1 << draw.randrange(8)
      case 4: content[at:at] = content[at : at + size] * draw.choice((1, 2, 100))
      case 5: content[at : at + size] = draw.choice((0, 1, 255, 127, 128)).to_bytes(1) * size
      case 6:
        other = draw.choice(others)
        start = draw.randrange(len(other))
        content[at : at + size] = other[start : start + size]
    if not content: content += b"x"
  return bytes(content)

files = valid_files()
with Context(DEVICE="REF"):
  for reader, contents in files.items():
    for content in contents: look(READERS[reader](content, folder))
  used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 28), used + (1 << 28)))
  everything = [content for contents in files.values() for content in contents]
  for n in range({count}):
    for reader, contents in files.items():
      content = changed(draw.choice(contents), everything)
      try:
        look(READERS[reader](content, folder))
        done[reader] += 1
      except ValueError:
        pass
      except BaseException as error:
        (folder / "failed").write_bytes(content)
        print(reader, type(error).__name__, str(error)[:300], flush=True)
        raise
print("done", sum(done.values()))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits of a process are Linux's here")
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 33))])
def test_damaged_files(seed: int, tmp_path: Path) -> None:
  """Files that were cut, mixed, or had bits turned: data or a ValueError, in little time and memory."""
  tests = str(Path(__file__).parent)
  code = LIMITED.format(tests=tests, folder=str(tmp_path), seed=seed, count=25, seconds=60)
  environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
  done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
  assert done.returncode == 0 and done.stdout.startswith("done"), done.stdout + done.stderr[-3000:]
