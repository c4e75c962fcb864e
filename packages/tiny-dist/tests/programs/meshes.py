"""Meshes of two axes: pieces that ranks have read themselves, and checkpoints. `meshes.py save|load FOLDER LOCAL`."""

import json
import sys
from pathlib import Path

import numpy as np

from tiny_dist import Mesh, from_pieces, init, load, own_piece, own_region, own_rows, save
from tiny_tensor import Tensor

do, folder, local = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
world = init()
size = world.size * local
mesh = Mesh({"data": 2, "model": size // 2} if size > 1 else {"data": 1, "model": 1}, local=local)
a = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)
both = {"data": 0, "model": 1}

x = Tensor(a).shard(mesh, both)
if size > 1:
  (i, j), (k, m) = own_region(x)
  np.testing.assert_array_equal(own_piece(x).numpy(), a[i:j, k:m])

rows = own_rows(list(range(6)), mesh.row("data"))  # ranks along "model" read the same
if local == 1:
  read = from_pieces(Tensor(a[rows]), mesh, {"data": 0}, 6)
  np.testing.assert_array_equal(read.numpy(), a)
  if size > 1:
    assert read.uop.sharding == Tensor(a).shard(mesh, {"data": 0}).uop.sharding
  try:
    from_pieces(Tensor(a[rows]), mesh, {"data": 0}, 60)
    assert size == 1
  except ValueError as error:
    assert f"rank {world.rank} gives a piece of 3 along axis 0, of 60 in all; expected 30" in str(error), error
elif world.size > 1:  # a rank gives what all of its devices have
  regions = [x.uop.sharding.region(i, a.shape) for i in mesh.here] if x.uop.sharding else []
  box = [slice(int(min(r[n][0] for r in regions)), int(max(r[n][1] for r in regions))) for n in range(2)]
  np.testing.assert_array_equal(from_pieces(Tensor(a[tuple(box)]), mesh, both).numpy(), a)

kept = {"x": x, "rows": Tensor(a + 1).shard(mesh, {"data": 0}), "all": Tensor(a + 2).shard(mesh)}
if do == "save":
  save(kept, folder, {"step": 7})
  parts = json.loads((folder / "index.json").read_text())["tensors"]
  assert {name: len(entry["parts"]) for name, entry in parts.items()} == {"x": 4, "rows": 2, "all": 1}, parts
else:
  layouts = ({"data": 1, "model": 0}, both, None)
  other = {name: Tensor.zeros(6, 10).contiguous().shard(mesh, where) for name, where in zip(kept, layouts)}
  assert load(other, folder) == {"step": 7}
  for n, t in enumerate(other.values()):
    np.testing.assert_array_equal(t.numpy(), a + n)
print(f"{do} {world.rank}" + "\n", end="", flush=True)
