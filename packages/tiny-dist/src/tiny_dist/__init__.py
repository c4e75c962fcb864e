"""Many processes and machines: the same program under mpiexec, torchrun or Slurm."""

from tiny_dist.groups.protocol import Fabric, Group, Unusable
from tiny_dist.start import Start, started

__all__ = ["Fabric", "Group", "Start", "Unusable", "started"]
