"""Runs a kernel in machine code among generated ones on an emulated AMD GPU, and shows what the GPU recorded of it.

    hatch run python integration/examples/amd_trace.py    # --help lists the options

A standard deviation: the mean and the differences from it are generated kernels, the sums of their squares are one in
machine code, in which a wave waits for memory in each round. It is written in Python with tiny-asm-amd, and
`Tensor.custom_kernel` takes it. The emulator runs the bytes of all of them on a model of Linux's driver, whose
registers the plugin sets up so that the GPU records thread traces and counters (`VIZ=-2`). Prints what
`python -m tiny_viz sqtt TRACE` prints, and says how to see it in a browser. Needs a C++ compiler and no GPU. Writes
`out/amd_trace.jsonl`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "integration" / "model"))

from gpu_model.as_device import as_device  # noqa: E402
from gpu_model.kfd_backend import ModelBackend  # noqa: E402
from gpu_model.toolchain import compiler  # noqa: E402
from tiny_asm_amd import Isa, Kernel, Label, null, s, v  # noqa: E402
from tiny_runtime import profile  # noqa: E402
from tiny_tensor import Context, Tensor  # noqa: E402
from tiny_viz.__main__ import main as show  # noqa: E402

CHIP, LANES, GROUPS, ROUNDS = "gfx1100", 32, 4, 6
COUNT = LANES * GROUPS * ROUNDS


def squares() -> Kernel:
  """`out[i]` becomes the sum of `x[i + 128 r]²` over the rounds r, for 4 workgroups of one wave."""
  isa, loop = Isa(CHIP), Label("loop")
  return Kernel.of(
    CHIP,
    "squares",
    [
      isa.s_load_b128(s[4:7], s[0:1], null),  # where out and x are
      isa.v_lshl_or_b32(v[0], s[2], 5, v[0]),  # 32 threads a workgroup
      isa.v_lshlrev_b32(v[0], 2, v[0]),  # their place in bytes
      isa.v_mov_b32(v[1], 0),
      isa.s_movk_i32(s[8], ROUNDS),
      isa.v_mov_b32(v[3], v[0]),
      isa.s_waitcnt(lgkmcnt=0),
      loop,
      isa.global_load_b32(v[2], v[3], s[6:7]),
      isa.v_add_nc_u32(v[3], 4 * LANES * GROUPS, v[3]),
      isa.s_sub_u32(s[8], s[8], 1),
      isa.s_cmp_lg_u32(s[8], 0),
      isa.s_waitcnt(vmcnt=0),
      isa.v_fmac_f32(v[1], v[2], v[2]),
      isa.s_cbranch_scc1(loop),
      isa.global_store_b32(v[0], v[1], s[4:5]),
      isa.s_endpgm(),
    ],
    argument_bytes=16,
    threads=LANES,
  )


def deviation(x: Tensor) -> Tensor:
  """The standard deviation of numbers."""
  program = squares().program(GROUPS, LANES, ops=2 * COUNT)
  sums = Tensor.empty(LANES * GROUPS).custom_kernel(x - x.mean(), fxn=lambda *_: program)[0]
  return (sums.sum() / COUNT).sqrt()


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--wave", type=int, help="print the instructions of this wave, one by one")
  parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder for the trace")
  options = parser.parse_args()
  if compiler() is None:
    print("the emulator needs a C++ compiler: install g++ or clang++", file=sys.stderr)
    return 1
  backend = ModelBackend(gpu=CHIP, machine_code=True)
  numbers = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
  options.out.mkdir(parents=True, exist_ok=True)
  path = options.out / "amd_trace.jsonl"
  rewrites = str(options.out / "amd_rewrites.jsonl.gz")
  with as_device(backend, "AMD"), Context(DEVICE="AMD", VIZ=-2, VIZ_FILE=rewrites), profile() as recorded:
    found = deviation(Tensor(numbers)).item()
  difference = abs(found - float(numbers.std()))
  recorded.save(path)
  launch = str([(record.kind, record.name) for record in recorded.records].index(("kernel", "squares")))
  status = show(["sqtt", str(path), "--launch", launch])
  if options.wave is not None:
    status = show(["sqtt", str(path), "--launch", launch, "--wave", str(options.wave)]) or status
  print(f"\nthe difference from NumPy is {difference:.1e}; python -m tiny_viz serve {path} shows the waves")
  return status or int(difference > 1e-5 or bool(backend.model.misuse))


if __name__ == "__main__":
  sys.exit(main())
