"""Trains, stops and goes on: `checkpoints.py FOLDER DO`.

`first`: five steps, a checkpoint, three more. `again`: from there, three steps, on any number of ranks. `full`:
the disk of the last rank is full. `alone`: one rank cannot write or read. `asked`: SIGTERM comes.
"""

import errno
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import tiny_dist.checkpoint as checkpoint
from tiny_dist import CheckpointError, Mesh, Stop, batches, from_pieces, init, load, own_rows, save, shard_parameters
from tiny_tensor import Tensor, nn

folder, do = Path(sys.argv[1]), sys.argv[2]
world = init()
mesh = Mesh()
Tensor.manual_seed(1)
layers = [nn.Linear(6, 12), nn.Linear(12, 3)]
parameters = nn.state.get_parameters(layers)
for p in parameters:
  p.shard_(mesh)
if do != "again":
  shard_parameters(parameters, mesh)  # one of them is whole on "again": layouts may differ
optimizer = nn.optim.Adam(parameters, lr=0.05)
tensors = {**nn.state.get_state_dict(layers), **{f"adam.{k}": t for k, t in optimizer.state_dict().items()}}
data = np.random.default_rng(0).normal(size=(96, 6)).astype(np.float32)


def step(rows: list[int]) -> float:
  """One step on rows of the data, of which each rank looks at its own only."""
  own = data[own_rows(rows, mesh)]
  x, y = (from_pieces(Tensor(a), mesh, 0, len(rows)) for a in (own, own[:, :3].argmax(1).astype(np.int32)))
  optimizer.zero_grad()
  loss = layers[1](layers[0](x).relu()).sparse_categorical_crossentropy(y)
  loss.backward()
  optimizer.step()
  return float(loss.item())


def say(text: str) -> None:
  print(text + "\n", end="", flush=True)


with Tensor.train():
  if do == "first":
    for rows in batches(96, 12, seed=7, epoch=0)[:5]:
      step(rows)
    save(tensors, folder, {"batch": 5})
    say(" ".join(f"{step(rows):.5f}" for rows in batches(96, 12, seed=7, epoch=0, first=5)))
  elif do == "again":
    first = load(tensors, folder)["batch"]
    say(" ".join(f"{step(rows):.5f}" for rows in batches(96, 12, seed=7, epoch=0, first=first)))
  elif do == "full":
    save(tensors, folder, {"batch": 0})
    before = (folder / "index.json").read_text()

    def full(*arguments: Any, **more: Any) -> None:
      raise OSError(errno.ENOSPC, "No space left on device")

    if world.rank == world.size - 1:
      checkpoint.safe_save = full  # type: ignore[attr-defined]
    try:
      save(tensors, folder, {"batch": 1})
    except CheckpointError as error:
      assert f"rank {world.size - 1}" in str(error) and "No space left" in str(error), error
      assert (folder / "index.json").read_text() == before
      assert [p.name for p in folder.parent.iterdir()] == [folder.name]
      say("the old checkpoint is there")
  elif do == "alone":
    save(tensors, folder, {"batch": 0})
    before = (folder / "index.json").read_text()
    try:
      save(tensors, folder, {"batch": object()})
    except TypeError:
      say("no notes for JSON")
    rename = Path.rename

    def taken(self: Path, target: Path) -> Path:
      if self.name == f".{folder.name}.new":
        raise OSError(errno.EACCES, "Permission denied")
      return rename(self, target)

    Path.rename = taken  # type: ignore[assignment, method-assign]
    try:
      save(tensors, folder, {"batch": 1})
    except CheckpointError as error:
      assert "rank 0" in str(error) and (folder / "index.json").read_text() == before, error
      say("the old checkpoint is back")
    Path.rename = rename  # type: ignore[method-assign]
    own = folder
    if world.rank == world.size - 1:  # whose disk has another copy
      own = folder.with_name("copy")
      shutil.copytree(folder, own)
      for file in own.glob("rank-*"):
        file.write_bytes(file.read_bytes()[:-9])
    for t in parameters:
      t.assign(t + 1).realize()
    held = [float(t.sum().item()) for t in parameters]
    try:
      load(tensors, own)
    except CheckpointError as error:
      assert world.rank == world.size - 1 or f"rank {world.size - 1}" in str(error), error
      assert [float(t.sum().item()) for t in parameters] == held
      say("nothing is loaded")
  elif do == "asked":
    stop = Stop()
    for number, rows in enumerate(batches(96, 12, seed=7, epoch=0)):
      step(rows)
      if number == 2 and world.rank == world.size - 1:
        os.kill(os.getpid(), signal.SIGTERM)
      if stop.asked():
        save(tensors, folder, {"batch": number + 1})
        say(f"stopped after {number + 1}")
        break
