"""What goes wrong: `faults.py NAME`. Rank 1 does something that the others do not."""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from tiny_dist import Mesh, RankError, Stop, init, started
from tiny_tensor import Tensor

what = sys.argv[1]
if what == "away" and os.environ["RANK"] == "1":
  time.sleep(5)
  sys.exit()
if what == "early" and started().rank == 1:
  raise ImportError("no module of rank 1")
world = init()
mesh = Mesh()
one = world.rank == 1
x = Tensor(np.ones((8, 4), np.float32)).shard(mesh, 0).realize()


if what == "graphs":
  try:
    (x.sum(0) * (3 if one else 2)).numpy()
  except RankError as error:
    text = str(error)
    assert "The first node that differs is number" in text and "CONST float32" in text, text
    assert "rank 0: CONST float32 () 2" in text and "rank 1: CONST float32 () 3" in text, text
    print(f"refused: {text.split('.')[0]}\n", end="", flush=True)
elif what == "rows":  # of a mesh: those of a row have the same, and would not find out among themselves
  rows = Mesh({"data": 2, "model": 2})
  y = Tensor(np.ones((8, 4), np.float32)).shard(rows, {"data": 0, "model": 1}).realize()
  try:
    (y.sum(1) * (3 if world.rank >= 2 else 2)).numpy()
  except RankError as error:
    assert "rank 0: CONST float32 () 2" in str(error) and "rank 2: CONST float32 () 3" in str(error), error
    print(f"refused: {str(error).split('.')[0]}\n", end="", flush=True)
elif what == "shapes":
  y = Tensor(np.ones((8, 5 if one else 4), np.float32)).shard(mesh, 0)
  try:
    (x.sum(0) + y.sum(0)[:4]).numpy()
  except RankError as error:
    assert "(8, 5)" in str(error) or "20" in str(error) or "40" in str(error), error
    print(f"refused: {str(error).split('.')[0]}\n", end="", flush=True)
elif what == "killed":
  for i in range(10**9):
    if one and i == 20:
      os.kill(os.getpid(), signal.SIGKILL)
    (x.sum(0) + 1).numpy()
elif what == "asked":  # as Slurm does it: every process of the job gets the signal, those that watch too
  stop = Stop()
  for path in Path("/proc").glob("[0-9]*/stat"):
    with suppress(OSError):
      if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
        os.kill(int(path.parent.name), signal.SIGTERM)
  if one:
    os.kill(os.getpid(), signal.SIGTERM)
  limit = time.monotonic() + 30
  while not stop.asked() and time.monotonic() < limit:
    (x.sum(0) + 1).numpy()
  print("stops\n", end="", flush=True)
elif what == "failed":
  if one:
    raise OSError("no such file: data.bin")
  (x.sum(0) + 1).numpy()
elif what == "slow":
  (x.sum(0) + 1).numpy()
  if one:
    time.sleep(4)
  (x.sum(0) + 1).numpy()
  print("came in the end\n", end="", flush=True)
elif what == "stuck":
  if one:
    time.sleep(600)
  (x.sum(0) + 1).numpy()
elif what == "nan":
  y = Tensor(np.full((8, 4), 1.0, np.float32)).shard(mesh, 0).realize()
  bad = Tensor([[float("nan") if i == 5 else 1.0] * 4 for i in range(8)]).shard(mesh, 0).realize()
  try:
    (y.sum(0) + bad.sum(0)).numpy()
  except RankError as error:
    assert "rank 1, array" in str(error) and "rank 0" not in str(error), error
    print("refused: NaN of rank 1\n", end="", flush=True)
elif what == "ended":
  if one:
    sys.exit()
  try:
    (x.sum(0) + 1).numpy()
  except RankError as error:
    assert "Rank 1 has come to the end of its program" in str(error), error
    print("refused: rank 1 has ended\n", end="", flush=True)
