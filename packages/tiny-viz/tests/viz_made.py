"""A trace made by hand: a kernel's compilation, and a run with layers, memory, counters and waves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from viz_compiler import compile_it

from tiny_uop.observe import tracing

MS = 1_000_000
LAYERS = [
  ("model.conv1", "forward", 10), ("model.layer1.0.conv1", "forward", 20), ("model.layer1.0.conv2", "forward", 21),
  ("model.layer1.0.conv2", "backward", 21), ("model.fc", "forward", 30), ("", "optimiser", 40),
]  # fmt: skip
MILLISECONDS = [3, 5, 12, 20, 1, 2]
"""Of each of them."""
COUNTERS = {"SQ_WAVES": 2, "SQ_BUSY_CYCLES": 900, "GL2C_HIT": 123456}
CODE = [
  [0, "s_load_b64 s[0:1], s[4:5]"],
  [8, "s_waitcnt lgkmcnt(0)"],
  [12, "v_fma_f32 v0, v1, v2, v0"],
  [20, "s_endpgm"],
]


def run_lines(began: int, slow: int = 1, without: str = "", extra: str = "") -> list[dict[str, Any]]:
  """The run: a kernel for each layer. `slow`: how many times as long that of `conv2` backward takes; kernels `without`
  are left out, and one called `extra` is added."""
  lines: list[dict[str, Any]] = [{
    "profile": 1, "program": "train.py", "process": 7, "began": began, "ended": began + 200 * MS,
    "threads": {"7": "MainThread", "8": "loader"}, "peaks": {"CPU": {"ops_per_s": 1e11, "bytes_per_s": 2e10}},
  }]  # fmt: skip
  names = ["copy_16" if not n else f"kernel_{n}" for n in range(len(LAYERS))]
  at = began + 20 * MS
  for n, (module, phase, line) in enumerate(LAYERS):
    function = {"file": "/home/me/train.py", "line": line, "function": "forward"}
    lines.append({"origin": n, **function, "module": module, "phase": phase})
  for n, name in enumerate(names):
    if name == without:
      continue
    size = 4_000_000 * (n + 1)
    what = {"device": "CPU", "thread": 7}
    lines.append({
      "kind": "alloc", "name": "allocate on CPU", **what, "start": at, "end": at + 1000, "nbytes": size,
      "memory": n + 1, "held": size, "tensor": f"{n + 1} × 1000000 × float32", "origins": [n],
    })  # fmt: skip
    took = MILLISECONDS[n] * MS * (slow if n == 3 else 1)
    lines.append({
      "kind": "kernel", "name": name, **what, "start": at + MS, "end": at + 2 * MS + took, "busy": took, "kernels": 1,
      "ops": 40 * MILLISECONDS[n] * MS, "nbytes": 9 * MILLISECONDS[n] * MS, "origins": [n],
    })  # fmt: skip
    at += took + 3 * MS
    if n % 2 == 0:
      lines.append({
        "kind": "free", "name": "free on CPU", **what, "start": at, "end": at + 1000, "nbytes": size,
        "memory": n + 1,
      })  # fmt: skip
    at += MS
  lines.append({"kind": "read", "name": "read from CPU", "device": "CPU", "thread": 8, "start": at, "end": at + MS})
  if extra:
    lines.append(
      {"kind": "kernel", "name": extra, "device": "CPU", "thread": 7, "start": at, "end": at + MS, "busy": MS}
    )
  return lines


def hardware_lines() -> list[dict[str, Any]]:
  """What VIZ=-2 is to record of the first kernel: counters, and two waves."""
  lines: list[dict[str, Any]] = [{"counters": COUNTERS, "record": 1}, {"code": 0, "instructions": CODE}]
  lines.append({"loops": [[0.75, "180–200", 21, 8, 0, "multiplies and adds"]], "name": "copy_16"})
  for n, place in enumerate(("SE0 CU0 SIMD0 slot 0", "SE0 CU0 SIMD1 slot 0")):
    start = 100 + 10 * n
    rows = [[start, 4, 0, 0], [start + 4, 300, 296, 8], [start + 304, 8, 0, 12], [start + 312, 1, 0, 20]]
    lines.append({"wave": place, "record": 1, "code": 0, "start": start, "end": start + 313, "rows": rows})
  return lines


def made_trace(path: Path, **options: Any) -> Path:
  """Write such a trace."""
  with tracing(path):
    compile_it()
  head = json.loads(path.read_text().splitlines()[0])
  more = [*run_lines(head["clock"], **options), *hardware_lines()]
  with path.open("a") as file:
    file.writelines(json.dumps(line) + "\n" for line in more)
  return path
