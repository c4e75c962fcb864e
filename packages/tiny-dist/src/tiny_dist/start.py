"""What a launcher has told this process: which rank it is, of how many, and which on its machine."""

from __future__ import annotations

import re
from typing import NamedTuple

from tiny_uop.context import EnvironmentVariable


class Start(NamedTuple):
  """The place of this process among those that were started together."""

  rank: int
  """Its number, from 0."""
  size: int
  """How many there are."""
  local_rank: int
  """Its number among those of its machine, from 0: which GPU it takes."""
  local_size: int
  """How many there are on its machine; 1 where the launcher does not say."""
  launcher: str
  """Who started it: "torchrun", "mpiexec (Open MPI)", "mpiexec (PMI)", "PMIx", "Slurm"; "" for a process alone."""


# The first row whose first two variables are set counts. MPI comes before Slurm: `mpiexec` in an allocation of Slurm
# leaves Slurm's variables of the batch step, where each process has number 0.
_LAUNCHERS: tuple[tuple[str, tuple[EnvironmentVariable, ...]], ...] = (
  ("torchrun", (
    EnvironmentVariable("RANK", "number of this process, as torchrun sets it"),
    EnvironmentVariable("WORLD_SIZE", "number of processes, as torchrun sets it"),
    EnvironmentVariable("LOCAL_RANK", "its number on its machine, as torchrun sets it"),
    EnvironmentVariable("LOCAL_WORLD_SIZE", "processes on its machine, as torchrun sets it"),
  )),
  ("mpiexec (Open MPI)", (
    EnvironmentVariable("OMPI_COMM_WORLD_RANK", "number of this process, as mpiexec (Open MPI) sets it"),
    EnvironmentVariable("OMPI_COMM_WORLD_SIZE", "number of processes, as mpiexec (Open MPI) sets it"),
    EnvironmentVariable("OMPI_COMM_WORLD_LOCAL_RANK", "its number on its machine, as mpiexec (Open MPI) sets it"),
    EnvironmentVariable("OMPI_COMM_WORLD_LOCAL_SIZE", "processes on its machine, as mpiexec (Open MPI) sets it"),
  )),
  ("mpiexec (PMI)", (
    EnvironmentVariable("PMI_RANK", "number of this process, as mpiexec (PMI) sets it"),
    EnvironmentVariable("PMI_SIZE", "number of processes, as mpiexec (PMI) sets it"),
    EnvironmentVariable("MPI_LOCALRANKID", "its number on its machine, as mpiexec (PMI) sets it"),
    EnvironmentVariable("MPI_LOCALNRANKS", "processes on its machine, as mpiexec (PMI) sets it"),
  )),
  ("Slurm", (
    EnvironmentVariable("SLURM_PROCID", "number of this process, as Slurm sets it"),
    EnvironmentVariable("SLURM_NTASKS", "number of processes, as Slurm sets it"),
    EnvironmentVariable("SLURM_LOCALID", "its number on its machine, as Slurm sets it"),
    EnvironmentVariable("SLURM_NTASKS_PER_NODE", "processes on its machine, as Slurm sets it"),
  )),
)  # fmt: skip
_TASKS = EnvironmentVariable(
  "SLURM_STEP_TASKS_PER_NODE", "processes on each machine, as `srun` sets it: `4(x2),3` for 4, 4 and 3"
)
_NODE = EnvironmentVariable("SLURM_NODEID", "which of the machines of a job this is, from 0, as `srun` sets it")
_STEP = EnvironmentVariable("SLURM_STEP_ID", "number of the step of a job, as `srun` sets it and `sbatch` does not")


def started() -> Start:
  """What the launcher says; one process alone where there is none.

  Raises ValueError for numbers that cannot be: a rank that is not below the number of processes.
  """
  for launcher, variables in _LAUNCHERS:
    if not (variables[0] and variables[1]):
      continue
    if launcher == "Slurm" and not _STEP:
      continue  # the script of a batch job, outside of srun: one process
    rank, size = (_number(v) for v in variables[:2])
    local_rank = _number(variables[2]) if variables[2] else 0
    local_size = _number(variables[3]) if variables[3] else 1
    if launcher == "Slurm" and _TASKS:
      local_size = _of_machine(_TASKS, _number(_NODE) if _NODE else 0)
    if not 0 <= rank < size:
      names = " and ".join(v.name for v in variables[:2])
      raise ValueError(f"{names} say rank {rank} of {size}: a rank is a number from 0 to {size - 1}")
    return Start(rank, size, local_rank, local_size, launcher)
  return Start(0, 1, 0, 1, "")


def _of_machine(variable: EnvironmentVariable, machine: int) -> int:
  """What a list of Slurm's says of a machine: `4(x2),3` for three."""
  counts: list[int] = []
  for part in (variable.get() or "").split(","):
    if (match := re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)) is None:
      raise ValueError(f"{variable.name}={variable.get()!r} is no list of numbers as 4(x2),3: start with srun")
    counts += [int(match[1])] * int(match[2] or 1)
  if machine >= len(counts):
    raise ValueError(
      f"{variable.name}={variable.get()!r} is about {len(counts)} machines, and this is number {machine}"
    )
  return counts[machine]


def _number(variable: EnvironmentVariable) -> int:
  text = variable.get()
  try:
    return int(text.partition("(")[0].partition(",")[0])  # Slurm writes "2(x3)" for three machines with 2 each
  except ValueError:
    raise ValueError(f"{variable.name}={text!r} is no number: unset it, or start with mpiexec or srun") from None
