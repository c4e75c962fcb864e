"""Reads damaged checkpoints: `damaged.py FOLDER`. Each is refused, or read right where what is wrong is of no account.

One value of the index is another or gone, or a file of tensors is cut.
"""

import copy
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tiny_dist import CheckpointError, init, load, save
from tiny_tensor import Tensor

VALUES: list[object] = [None, 1, -1, "x", [], {}, [1], [[0, 1]], [[0, 2], [0, 4]], 10**30, True, "../x", 2.5]
GONE = object()

init()
folder = Path(sys.argv[1])
index, stored = folder / "index.json", folder / "rank-0001-of-0001.safetensors"
expected = {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.array(5, np.int32), "e": np.zeros((0, 3), "f4")}
save({key: Tensor(value) for key, value in expected.items()}, folder, {"step": 7})


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
  yield at
  for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
    yield from places(value[key], (*at, key))


def other(value: Any, at: tuple[Any, ...], new: object) -> Any:
  """`value` with `new` in the place `at`."""
  if not at:
    return new
  changed = inner = copy.deepcopy(value)
  for key in at[:-1]:
    inner = inner[key]
  if new is GONE:
    del inner[at[-1]]
  else:
    inner[at[-1]] = new
  return changed


def is_read() -> bool:
  """Whether it is. Fails where it is read wrong, or refused without its name or with a tensor changed."""
  tensors = {key: Tensor.ones(*value.shape, dtype=value.dtype.name).contiguous() for key, value in expected.items()}
  try:
    load(tensors, folder)
  except (CheckpointError, TypeError) as error:
    assert str(folder) in str(error), error
    assert all((t.numpy() == 1).all() for t in tensors.values())
    return False
  for key, value in expected.items():
    np.testing.assert_array_equal(tensors[key].numpy(), value, strict=True)
  return True


text = index.read_text("utf-8")
good = json.loads(text)
assert is_read()
for at in places(good):
  for new in [*VALUES, *([GONE] if at else [])]:
    index.write_text(json.dumps(other(good, at, new)), "utf-8")
    is_read()
for wrong in ("", "{", "[" * 100_000, text[:-1]):
  index.write_text(wrong, "utf-8")
  assert not is_read(), wrong[:9]
index.write_text(text, "utf-8")
data = stored.read_bytes()
for size in range(0, len(data), 5):
  stored.write_bytes(data[:size])
  assert not is_read(), size
stored.unlink()
assert not is_read()
print("all are refused")
