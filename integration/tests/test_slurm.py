"""The batch script of `docs/many-machines.md` under Slurm: a cluster of two nodes on this machine, each with a name and
temporary files of its own.

Needs root, and Debian's packages slurmd, slurmctld, slurm-client, slurm-wlm-basic-plugins and munge; with Open MPI
libpmix-dev as well (Slurm's plugin looks for `libpmix.so`).
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "unshare")
ROOT = Path(__file__).parents[2]
PLACES = f"{os.environ['PATH']}:/usr/sbin"
pytestmark = [
  pytest.mark.nightly,
  pytest.mark.skipif(
    any(shutil.which(n, path=f"/usr/sbin:{os.environ['PATH']}") is None for n in NEEDED), reason="no Slurm"
  ),
  pytest.mark.skipif(sys.platform == "win32" or os.geteuid() != 0, reason="needs root: it makes namespaces"),
]
CONF = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={ports[0]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
NodeName=node1 NodeAddr=127.0.0.1 Port={ports[1]} CPUs=32
NodeName=node2 NodeAddr=127.0.0.1 Port={ports[2]} CPUs=32
PartitionName=all Nodes=ALL Default=YES State=UP
"""
NODE = """
hostname {node}
mkdir -p {temporary}{folder}
mount --rbind {folder} {temporary}{folder}
cp /etc/hosts {temporary}/hosts
echo 127.0.0.1 node1 node2 >> {temporary}/hosts
mount --bind {temporary}/hosts /etc/hosts
mount --rbind {temporary}/tmp /tmp
slurmd -f {folder}/slurm.conf
"""


def run(*command: str, seconds: float = 60, **more: str) -> str:
  done = subprocess.run(
    command, capture_output=True, text=True, timeout=seconds, check=False,
    env={**os.environ, "PATH": PLACES, **more},
  )  # fmt: skip
  assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
  return done.stdout


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Path]:
  """The folder of a cluster that runs."""
  if not str(tmp_path).startswith("/tmp/"):
    pytest.skip("nodes have a /tmp of their own, in which the test's folder is put")
  folder, temporary = tmp_path, Path(f"/var/tmp/tiny-dist-{os.getpid()}")
  sockets = [socket.socket() for _ in range(3)]
  for s in sockets:
    s.bind(("127.0.0.1", 0))
  ports = [s.getsockname()[1] for s in sockets]
  for s in sockets:
    s.close()
  (folder / "slurm.conf").write_text(CONF.format(host=socket.gethostname(), folder=folder, ports=ports))
  (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
  (folder / "munge.key").write_bytes(os.urandom(64))
  for path, mode in ((folder / "munge.key", 0o600), *[(p, 0o755) for p in (folder, *folder.parents[:2])]):
    path.chmod(mode)  # munge insists on it
  files = [f"--{name}-file={folder}/munge.{name}" for name in ("key", "pid", "log", "seed")]
  try:
    run("munged", "--force", f"--socket={folder}/munge.socket", *files)
    run("slurmctld", "-c", "-f", f"{folder}/slurm.conf")
    for node in ("node1", "node2"):
      (temporary / node).mkdir(parents=True)
      script = NODE.format(node=node, folder=folder, temporary=temporary / node)
      run("unshare", "-m", "-u", "bash", "-ec", script)
    limit = time.monotonic() + 60
    while "idle" not in run("sinfo", "-h", SLURM_CONF=f"{folder}/slurm.conf"):
      assert time.monotonic() < limit, (folder / "node1.log").read_text()
      time.sleep(0.5)
    yield folder
  finally:
    for name in ("node1", "node2", "slurmctld", "munge"):
      with suppress(OSError, ValueError):
        os.kill(int((folder / f"{name}.pid").read_text()), 15)
    shutil.rmtree(temporary, ignore_errors=True)


def job(cluster: Path, script: str, program: str) -> str:
  """What a batch script prints, `train.py` being a program; with fewer ranks than it says."""
  (cluster / "train.py").write_text(program)
  openmpi = "Open MPI" in run("mpiexec", "--version")
  smaller = script.replace("per-node=8", "per-node=2").replace("per-task=4", "per-task=1")
  (cluster / "job.sh").write_text(smaller if openmpi else smaller.replace("--mpi=pmix", "--mpi=pmi2"))
  around = {"SLURM_CONF": f"{cluster}/slurm.conf", "UCX_TLS": "tcp,sm,self"}
  run("sbatch", "--wait", f"--chdir={cluster}", f"--output={cluster}/out", f"{cluster}/job.sh", seconds=240, **around)
  return (cluster / "out").read_text()


def documented() -> tuple[str, str]:
  """The batch script of the page, and the program."""
  text = (ROOT / "docs" / "many-machines.md").read_text()
  script = re.search(r"## Slurm.*?```sh\n(.*?)```", text, re.S)
  program = re.search(r"## A script.*?```python\n(.*?)```", text, re.S)
  assert script is not None and program is not None
  return script[1], program[1]


def test_the_documented_script_trains(cluster: Path) -> None:
  script, program = documented()
  assert "srun --mpi=pmix" in script and "per-node=8" in script
  out = job(cluster, script, program)
  assert out.count("{'epoch': 3}") == 4 and re.search(r"^1\.\d\d 0\.\d\d$", out, re.M), out


def test_a_rank_that_is_killed(cluster: Path) -> None:
  """Without --kill-on-bad-exit, too: Slurm leaves the others alone, and they end themselves. Open MPI's do it, too."""
  program = (ROOT / "packages" / "tiny-dist" / "tests" / "programs" / "faults.py").read_text()
  script, _ = documented()
  alone = script.replace("--kill-on-bad-exit ", "").replace("train.py", "train.py killed || echo ended")
  assert alone.count("train.py killed || echo ended") == 1
  out = job(cluster, alone, program)
  assert "ended" in out and "rank 1 of 4 (process " in out and "has ended by surprise" in out, out
  assert "which is gone; it ends all ranks" in out or "Open MPI" in run("mpiexec", "--version"), out
