"""Many processes and machines: the same program under mpiexec, torchrun or Slurm."""

from tiny_dist.groups.protocol import Fabric, Group, Unusable
from tiny_dist.mesh import Mesh
from tiny_dist.start import Start, started
from tiny_dist.world import RankError, World, init, world

__all__ = ["Fabric", "Group", "Mesh", "RankError", "Start", "Unusable", "World", "init", "started", "world"]
