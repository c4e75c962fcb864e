"""Many processes and machines: the same program under mpiexec, torchrun or Slurm."""

from tiny_dist.checkpoint import CheckpointError, Stop, batches, load, own_rows, save
from tiny_dist.groups.protocol import Fabric, Group, Unusable
from tiny_dist.layouts import shard_parameters, shard_state
from tiny_dist.mesh import Mesh
from tiny_dist.pieces import from_pieces, own_piece, own_region
from tiny_dist.pipeline import Pipeline
from tiny_dist.ranks import RankError, World, init, world
from tiny_dist.start import Start, started

__all__ = [
  "CheckpointError", "Fabric", "Group", "Mesh", "Pipeline", "RankError", "Start", "Stop", "Unusable", "World",
  "batches", "from_pieces", "init", "load", "own_piece", "own_region", "own_rows", "save", "shard_parameters",
  "shard_state", "started", "world",
]  # fmt: skip
