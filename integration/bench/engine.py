"""How fast the engine is: from tensor graph to rendered source, compiling nothing, against tinygrad on the same graph.

    hatch run engine-bench                      # ours alone
    hatch run oracle:engine-bench               # against tinygrad, which that environment has
    hatch run engine-bench --json out/engine.json
    hatch run engine-bench --models resnet18    # the first call of a ResNet-18 alone

The graphs are those of `engine_models.py`: loss and gradients of all weights of ResNet-50 (32 images of 224²) and of a
16-layer Llama-style transformer (4 texts of 512 tokens). Each measurement is a process of its own, ours and theirs in
turn, with nothing cached from before and nothing but imports done; the table has the least of all rounds and, in
brackets, the median. What the figures are:

* graph: building the model and the tensor graph, gradients included.
* to source: from the tensor graph to the source text of all its kernels. Ours is `Tensor.schedule_linear` (planning by
  the frontend, tiny_sched, memory planning) and then tiny_codegen's `compile_kernel` for each distinct kernel,
  optimised for an AVX2 processor and rendered as LLVM IR, which nothing compiles. Theirs is `Tensor.realize` on the
  device NULL, which renders kernels, and compiles and runs nothing; what it takes to go through the list of kernels is
  in it (a second `realize` bounds that: "again"). CACHELEVEL=0, so no results of earlier processes are used, and
  PARALLEL=0: ours is one process, and so is theirs then; `--tinygrad-workers 4` gives it four more to make code in.
* schedule and codegen: its parts. Theirs come from another process that calls `Tensor.schedule_linear`; codegen is the
  difference.
* memory: the largest resident size up to there, less that after the imports; and the whole.
* again: `Tensor.schedule_linear` (theirs: `Tensor.realize`) of the same graph built anew, a hit of the schedule cache.
* miss and hit: another process schedules graphs built anew, the schedule cache emptied or not; the best of five.
  With planning it is all of `Tensor.schedule_linear`, and alone it is `tiny_sched.schedule`. The process is warm after
  the first, so this miss is faster than the cold one above.

Then the first calls of the programs in `first_calls.py`, each in a new process on one processor, in CPU seconds of that
process and of the compilers that it starts, so that what others on the machine do hardly counts. Weights and inputs are
in the library's memory before; the result is read at the end of the call, and compared with one in float64. "warm" is a
process that finds what the cold one before it has put on disk (`XDG_CACHE_HOME`, torch.compile's
`TORCHINDUCTOR_CACHE_DIR`). Modules are there as bytecode, as pip leaves them. tinygrad runs on its device CPU here.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine_models import MODELS, Library, builder
from first_calls import FIRST, measure_first
from suite.lanes import LANES

Figures = dict[str, float]
REPEATS, FEW_REPEATS = 5, 2  # of misses and hits; of small models
INSTALL = "tinygrad is not installed: `pip install tinygrad==0.14.0`, or `hatch run oracle:engine-bench`"
SECONDS = ("graph", "to source", "schedule", "codegen", "again")
PEERS = ("tinygrad", "torch compiled", "torch")
TARGETS = {"to source": 0.12, "hit": 1 / 20, "memory over imports": 1.0}


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
  """(seconds, result)."""
  start = time.perf_counter()
  result = run()
  return time.perf_counter() - start, result


def resident() -> float:
  """The largest resident size of this process so far, in MB."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


# *** in the child process ***


def measure_ours(model: str, small: bool) -> Figures:
  """Our figures from tensors to source."""
  import tiny_sched  # noqa: F401  # tiny_tensor imports it at the first use
  from tiny_codegen import LLVMRenderer, compile_kernel, cpu_target
  from tiny_tensor import Device, Tensor, dtypes, nn
  from tiny_uop import Ops

  features = ("+avx", "+avx2", "+fma", "+sse4.1", "+f16c")
  renderer = LLVMRenderer(cpu_target("x86_64-unknown-linux-gnu", "skylake", features))
  build = builder(model, small, Library(Tensor, nn, dtypes))
  assert Device.DEFAULT
  imports = resident()
  graph, outputs = timed(build)
  cold, linear = timed(lambda: Tensor.schedule_linear(*outputs))
  kernels = [call.src[0] for call in linear.src if call.src[0].op is Ops.SINK]
  distinct = dict.fromkeys(kernels)
  # the text is all that is kept, as in a cache of compiled kernels
  codegen, sources = timed(lambda: [str(compile_kernel(kernel, renderer).src[2].arg) for kernel in distinct])
  figures = {
    "graph": graph,
    "to source": cold + codegen,
    "schedule": cold,
    "codegen": codegen,
    "kernels": len(kernels),
    "distinct": len(distinct),
    "source MB": sum(map(len, sources)) / 1e6,
    "memory": resident(),
    "memory over imports": resident() - imports,
  }
  outputs = build()
  figures["again"], _ = timed(lambda: Tensor.schedule_linear(*outputs))
  return figures


def measure_cache(model: str, small: bool) -> Figures:
  """What a hit of our schedule cache saves."""
  from tiny_sched import schedule, schedule_cache_clear
  from tiny_tensor import Tensor, dtypes, nn

  build = builder(model, small, Library(Tensor, nn, dtypes))

  def whole() -> float:
    outputs = build()
    return timed(lambda: Tensor.schedule_linear(*outputs))[0]

  def alone() -> float:
    first, *others = build()
    sink = first.graph(*others)
    return timed(lambda: schedule(sink))[0]

  figures: Figures = {}
  for name, run in (("", whole), (" tiny_sched", alone)):
    misses, hits = [], []
    for _ in range(FEW_REPEATS if small else REPEATS):
      schedule_cache_clear()
      misses.append(run())
      hits.append(run())
    figures |= {f"miss{name}": min(misses), f"hit{name}": min(hits)}
  return figures


def tinygrad_library() -> Library:
  """tinygrad on a device that renders kernels and runs none."""
  from tinygrad import Device, Tensor, dtypes, nn

  assert Device[Device.DEFAULT] and Device.DEFAULT == "NULL"
  return Library(Tensor, nn, dtypes)


def measure_tinygrad(model: str, small: bool) -> Figures:
  """Their figures from tensors to source."""
  library = tinygrad_library()
  from tinygrad import GlobalCounters

  build = builder(model, small, library)
  imports = resident()
  graph, outputs = timed(build)
  whole, _ = timed(lambda: library.Tensor.realize(*outputs))
  figures = {
    "graph": graph,
    "to source": whole,
    "kernels": GlobalCounters.kernel_count,
    "memory": resident(),
    "memory over imports": resident() - imports,
  }
  outputs = build()
  figures["again"], _ = timed(lambda: library.Tensor.realize(*outputs))
  return figures


def measure_tinygrad_schedule(model: str, small: bool) -> Figures:
  """Their figures from tensors to schedule."""
  library = tinygrad_library()
  outputs = builder(model, small, library)()
  seconds, linear = timed(lambda: library.Tensor.schedule_linear(*outputs))
  return {"schedule": seconds, "distinct": len({call.src[0] for call in linear.src})}


MEASURES: dict[str, Callable[[str, bool], Figures]] = {
  "ours": measure_ours,
  "ours cache": measure_cache,
  "tinygrad": measure_tinygrad,
  "tinygrad schedule": measure_tinygrad_schedule,
  **{f"first {lane}": partial(measure_first, lane) for lane in ("ours", *PEERS)},
}


# *** in the parent ***


@dataclass(frozen=True)
class Runner:
  """The interpreter of a measurement, and what it sets in its environment."""

  python: str = sys.executable
  environment: tuple[tuple[str, str], ...] = ()


def measure(runner: Runner, what: str, model: str, small: bool) -> Figures:
  """One measurement in a process of its own. Raises RuntimeError with what the process wrote if it fails."""
  command = [runner.python, __file__, "--measure", what, "--models", model, *(["--small"] if small else [])]
  done = subprocess.run(command, capture_output=True, text=True, env=os.environ | dict(runner.environment))
  if done.returncode:
    raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
  figures: Figures = json.loads(done.stdout.splitlines()[-1])
  return figures


def has(python: str, module: str) -> bool:
  """Whether an interpreter can import a module."""
  code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
  return subprocess.run([python, "-c", code]).returncode == 0


def rounds_of(model: str, count: int, small: bool, theirs: Runner | None) -> dict[str, list[Figures]]:
  """The figures of every round, ours and theirs."""
  runs: dict[str, list[Figures]] = {"ours": [], **({"tinygrad": []} if theirs else {})}
  for _ in range(count):
    runs["ours"].append(measure(Runner(), "ours", model, small) | measure(Runner(), "ours cache", model, small))
    if theirs:
      parts = measure(theirs, "tinygrad schedule", model, small)
      figures = parts | measure(theirs, "tinygrad", model, small)
      runs["tinygrad"].append({**figures, "codegen": figures["to source"] - figures["schedule"]})
  return runs


def first_rounds(name: str, count: int, small: bool, pythons: dict[str, str]) -> dict[str, list[Figures]]:
  """The figures of every round, for each lane with a cold and a warm cache; of a lane that fails, its message is
  printed and there are none."""
  runs: dict[str, list[Figures]] = {}
  settings = {"PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1", "CPU_COUNT": "1"}
  measure(Runner(environment=tuple(settings.items())), "first ours", name, True)  # writes bytecode
  for _ in range(count):
    for lane, python in pythons.items():
      with tempfile.TemporaryDirectory() as cache:
        places = {"XDG_CACHE_HOME": cache, "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor")}
        runner = Runner(python, tuple((settings | places | dict(LANES[lane].environment)).items()))
        try:
          for kind in ("cold", "warm"):
            figures = measure(runner, f"first {lane}", name, small)
            runs.setdefault(f"{lane}, {kind}", []).append(figures)
        except RuntimeError as error:
          if lane == "ours":
            raise
          print(f"{lane} cannot run {name}: {str(error).strip().splitlines()[-1]}")
  return runs


def show_first(name: str, runs: dict[str, list[Figures]]) -> None:
  """Prints the table of a program's first calls."""
  row = FIRST[name]
  print(f"\n{f'first call, {name}':<28}{'CPU s':>8} (median)   prepare   import  goal")
  for lane, figures in runs.items():
    least = summary(figures)
    first = least["first call"]
    goal = {"ours, cold": row.cold, "ours, warm": row.warm}.get(lane)
    verdict = "" if goal is None else f"  ≤ {goal:.2f} (Zen 4): {'met' if first['min'] <= goal else 'missed'}"
    others = "".join(f"{least[part]['min']:>9.2f}" for part in ("prepare", "import"))
    print(f"{lane:<28}{first['min']:>8.3f} ({first['median']:.3f}) {others}{verdict}")


def summary(runs: list[Figures]) -> dict[str, dict[str, float]]:
  """Least and median of every figure."""
  return {
    name: {"min": min(r[name] for r in runs), "median": statistics.median(r[name] for r in runs)} for name in runs[0]
  }


def cell(figures: dict[str, dict[str, float]] | None, name: str) -> str:
  """A figure as the table has it."""
  if figures is None or name not in figures:
    return f"{'':>22}"
  low, middle = figures[name]["min"], figures[name]["median"]
  if name in ("kernels", "distinct"):
    return f"{low:>10.0f}{'':>12}"
  unit = "MB" if "memory" in name or "MB" in name else "s"
  return f"{low:>10.3f} ({middle:.3f}) {unit}".ljust(22)


def ratio_cell(top: float, bottom: float, target: float | None) -> str:
  """A ratio and whether it is what it should be."""
  verdict = "" if target is None else f" (target ≤ {target:.3f}: {'met' if top <= target * bottom else 'missed'})"
  return f"{top / bottom:8.3f}{verdict}"


def show(model: str, runs: dict[str, list[Figures]]) -> None:
  """Prints the table of one model."""
  ours, theirs = summary(runs["ours"]), summary(runs["tinygrad"]) if "tinygrad" in runs else None
  print(f"\n{model:<22} {'ours':>10} {'':<12}{'tinygrad' if theirs else '':>10} {'':<12}{'ours ÷' if theirs else ''}")
  for name in (*SECONDS, "kernels", "distinct", "memory over imports", "memory"):
    ratio = ""
    if theirs is not None and name not in ("again", "kernels", "distinct"):
      ratio = ratio_cell(ours[name]["min"], theirs[name]["min"], TARGETS.get(name))
    print(f"{name:<22}{cell(ours, name)} {cell(theirs, name)}{ratio}".rstrip())
  print(f"{'schedule cache':<22} {'miss':>10} {'':<12}{'hit':>10} {'':<12}hit ÷ miss")
  for title, part in (("with planning", ""), ("tiny_sched alone", " tiny_sched")):
    miss, hit = ours[f"miss{part}"], ours[f"hit{part}"]
    ratio = ratio_cell(hit["min"], miss["min"], TARGETS["hit"])
    print(f"{title:<22}{cell(ours, f'miss{part}')} {cell(ours, f'hit{part}')}{ratio}")


def arguments() -> argparse.Namespace:
  """What the command line says."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--models", nargs="+", choices=(*MODELS, *FIRST), default=(*MODELS, *FIRST))
  parser.add_argument("--rounds", type=int, default=3, help="measurements of each (default: 3)")
  parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
  parser.add_argument("--ours-only", action="store_true", help="leave others out, which take minutes")
  parser.add_argument(
    "--tinygrad-python", default=sys.executable, metavar="PYTHON", help="an interpreter that has tinygrad"
  )
  parser.add_argument("--tinygrad-workers", type=int, default=0, help="further processes it uses (default: none)")
  parser.add_argument("--small", action="store_true", help="tiny models, to try the benchmark itself")
  parser.add_argument("--measure", choices=tuple(MEASURES), help=argparse.SUPPRESS)
  return parser.parse_args()


def main() -> int:
  """Prints the tables."""
  args = arguments()
  if args.measure:
    print(json.dumps(MEASURES[args.measure](args.models[0], args.small)))
    return 0
  theirs = None
  if not args.ours_only and has(args.tinygrad_python, "tinygrad"):
    settings = {"DEV": "NULL", "CACHELEVEL": "0", "PARALLEL": str(args.tinygrad_workers)}
    theirs = Runner(args.tinygrad_python, tuple(settings.items()))
  if theirs is None and not args.ours_only:
    print(INSTALL)
  print(f"least of {args.rounds} rounds (median)")
  results = {}
  for model in args.models:
    if model in FIRST:
      pythons = {"ours": sys.executable}
      if not args.ours_only:
        pythons |= {lane: sys.executable for lane in PEERS if has(sys.executable, LANES[lane].library)}
        pythons |= {} if theirs is None else {"tinygrad": theirs.python}
      results[model] = first_rounds(model, args.rounds, args.small, pythons)
      show_first(model, results[model])
    else:
      results[model] = rounds_of(model, args.rounds, args.small, theirs)
      show(model, results[model])
  if args.json:
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(results, indent=2) + "\n")
  return 0


if __name__ == "__main__":
  sys.exit(main())
