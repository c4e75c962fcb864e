"""What launchers say, and what is made of it."""

from __future__ import annotations

import pytest

from tiny_dist import Start, started
from tiny_dist.start import _LAUNCHERS


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
  for _, variables in _LAUNCHERS:
    for variable in variables:
      monkeypatch.delenv(variable.name, raising=False)
  for name in ("SLURM_STEP_ID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"):
    monkeypatch.delenv(name, raising=False)


CASES: dict[str, tuple[dict[str, str], Start]] = {
  "alone": ({}, Start(0, 1, 0, 1, "")),
  "torchrun": (
    {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, Start(5, 8, 1, 4, "torchrun")),
  "hydra": ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2", "PMI_FD": "11"},
            Start(1, 2, 1, 2, "mpiexec (PMI)")),
  "prte": ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}, Start(3, 4, 1, 2, "mpiexec (Open MPI)")),
  "srun": ({"SLURM_PROCID": "6", "SLURM_NTASKS": "8", "SLURM_LOCALID": "2", "SLURM_NTASKS_PER_NODE": "4(x2)",
            "SLURM_STEP_ID": "0"}, Start(6, 8, 2, 4, "Slurm")),
  # as `srun -n 11` in a job of three machines sets them, without --ntasks-per-node
  "srun on machines that differ": (
    {"SLURM_JOB_ID": "4711", "SLURM_JOBID": "4711", "SLURM_JOB_NUM_NODES": "3", "SLURM_NNODES": "3",
     "SLURM_JOB_NODELIST": "node[1-3]", "SLURM_STEP_NODELIST": "node[1-3]", "SLURM_STEP_ID": "2", "SLURM_STEPID": "2",
     "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NUM_TASKS": "11", "SLURM_NTASKS": "11", "SLURM_NPROCS": "11",
     "SLURM_TASKS_PER_NODE": "4(x2),3", "SLURM_STEP_TASKS_PER_NODE": "4(x2),3", "SLURM_NODEID": "2",
     "SLURM_PROCID": "9", "SLURM_LOCALID": "1", "SLURM_GTIDS": "8,9,10", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1",
     "SLURM_CPUS_ON_NODE": "4", "SLURM_DISTRIBUTION": "block", "SLURM_SUBMIT_DIR": "/home/me",
     "PMIX_RANK": "9", "PMIX_NAMESPACE": "slurm.pmix.4711.2"},
    Start(9, 11, 1, 3, "Slurm")),
  "script of a batch job": ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, Start(0, 1, 0, 1, "")),
  "mpiexec in a job of Slurm": (
    {"PMI_RANK": "1", "PMI_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"},
    Start(1, 2, 0, 1, "mpiexec (PMI)")),
  # Open MPI's own mpiexec starts its daemons with srun, and then its processes
  "Open MPI in a job of Slurm": (
    {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
     "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0",
     "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_NODEID": "1", "SLURM_LOCALID": "0", "PMIX_RANK": "3"},
    Start(3, 4, 1, 2, "mpiexec (Open MPI)")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_launchers(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
  variables, expected = CASES[case]
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  assert started() == expected


def test_what_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
  for name, value in (("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_NODEID", "1")):
    monkeypatch.setenv(name, value)
  monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2")
  with pytest.raises(ValueError, match="='2' is about 1 machines, and this is number 1"):
    started()
  monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "many")
  with pytest.raises(ValueError, match="='many' is no list of numbers as 4\\(x2\\),3"):
    started()
  monkeypatch.setenv("PMI_RANK", "4")
  monkeypatch.setenv("PMI_SIZE", "4")
  with pytest.raises(ValueError, match="PMI_RANK and PMI_SIZE say rank 4 of 4: a rank is a number from 0 to 3"):
    started()
  monkeypatch.setenv("PMI_RANK", "first")
  with pytest.raises(ValueError, match="PMI_RANK='first' is no number"):
    started()
