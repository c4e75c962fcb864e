"""Whether an AMD GPU records what its waves do (`VIZ=-2`), and whether that is what the program says.

A product of matrices is launched once as always and once recorded, and the results compared; then the recorded packets
are decoded along the kernel's machine code. Keeps the trace for whoever looks into it: `recording.py FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from tiny_runtime.profiling.recording import profile
from tiny_tensor import Context, Device, Tensor
from tiny_viz import read_trace
from tiny_viz.hardware import Recordings

SIZE = 128


def main(folder: Path) -> int:
  """The exit status: 0 where waves were recorded whose instructions are those of the program."""
  device = Device.DEFAULT
  if not Device[device].info.capabilities.recordings:
    print(f"{device} records nothing of its waves")
    return 0
  a, b = (np.random.default_rng(n).standard_normal((SIZE, SIZE), np.float32) for n in range(2))
  x, y = Tensor(a).realize(), Tensor(b).realize()
  plain = (x @ y).numpy()
  with profile() as found, Context(VIZ=-2, VIZ_FILE=str(folder / "compiler.jsonl.gz")):
    recorded = (x @ y).numpy()
  path = folder / "recording.jsonl"
  found.save(path)
  wrong = int(not np.array_equal(plain, recorded))
  print("the results are", "not those of a launch that was not recorded" if wrong else "the same")
  recordings = Recordings(read_trace(path).run)
  for launch in recordings.launches:
    print(f"{recordings.name(launch)}: counters {recordings.counters(launch)}")
    sizes = {trace.engine: len(trace.data) for trace in recordings.traces(launch)}
    print(f"  bytes of traces, by shader engine: {sizes or 'none'}")
    waves = recordings.waves(launch)
    problems = [f"{each.place}: {each.wave.problem}" for each in waves if each.wave.problem]
    whole = [each for each in waves if each.wave.steps and not each.wave.problem]
    print(
      f"  {len(waves)} waves, {len(whole)} of them traced from the first instruction to the last",
      *problems[:9],
      sep="\n  ",
    )
    wrong |= int(not whole or bool(problems))
  return wrong | int(not recordings.launches)


if __name__ == "__main__":
  sys.exit(main(Path(sys.argv[1])))
