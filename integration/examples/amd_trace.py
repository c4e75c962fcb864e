"""Writes a kernel in machine code, runs it on an emulated AMD GPU, and shows what the GPU recorded of its waves.

    hatch run python integration/examples/amd_trace.py    # --help lists the options

The kernel is written in Python with tiny-asm-amd: a sum of squares in which a wave waits for memory in each round. The
emulator runs its bytes on a model of Linux's driver, whose registers the plugin sets up so that the GPU records thread
traces and counters (`VIZ=-2` does that for every kernel of a program). Prints what `python -m tiny_viz sqtt TRACE`
prints, and says how to see it in a browser. Needs a C++ compiler and no GPU. Writes `out/amd_trace.jsonl`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "integration" / "model"))

from gpu_model.kfd_backend import ModelBackend  # noqa: E402
from gpu_model.toolchain import compiler  # noqa: E402
from tiny_asm_amd import Isa, Kernel, Label, code_object, null, s, v  # noqa: E402
from tiny_runtime import Binary  # noqa: E402
from tiny_runtime.profiling.recording import begin, end, profile  # noqa: E402
from tiny_uop import ParamInfo, UOp, dtypes  # noqa: E402
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


def binary_of(kernel: Kernel) -> Binary:
  """The kernel as a program of the plugin AMD."""
  one, groups, threads = (UOp.const(dtypes.int32, n) for n in (1, GROUPS, LANES))
  params = (
    ParamInfo(0, dtypes.float32, LANES * GROUPS, False, True),
    ParamInfo(1, dtypes.float32, COUNT, True, False),
  )
  ops, nbytes = (UOp.const(dtypes.int32, n) for n in (2 * COUNT, 4 * COUNT + 4 * LANES * GROUPS))
  text = "\n".join(map(str, kernel.body))
  code = code_object([kernel])
  return Binary(code, kernel.name, (groups, one, one), (threads, one, one), params, (), ops, nbytes, text)


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("--wave", type=int, help="print the instructions of this wave, one by one")
  parser.add_argument("--out", type=Path, default=ROOT / "out", help="folder for the trace")
  options = parser.parse_args()
  if compiler() is None:
    print("the emulator needs a C++ compiler: install g++ or clang++", file=sys.stderr)
    return 1
  backend = ModelBackend(gpu=CHIP, machine_code=True)
  device, binary = backend.open(0), binary_of(squares())
  numbers = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
  x, out = device.alloc(numbers.nbytes), device.alloc(4 * LANES * GROUPS)
  device.write(x, 0, numbers.data.cast("B"))
  with profile() as recorded:
    start = begin()
    found = device.launch_recorded(device.load(binary), [(out, 0), (x, 0)], [], (GROUPS, 1, 1), (LANES, 1, 1))
    end(start, "kernel", binary.entry, device.info.name, found.seconds, kernels=1, recording=found)
  result = np.empty(LANES * GROUPS, np.float32)
  device.read(out, 0, result.data.cast("B"))
  device.close()
  difference = float(abs(result - (numbers.reshape(ROUNDS, -1) ** 2).sum(0)).max())
  options.out.mkdir(parents=True, exist_ok=True)
  path = options.out / "amd_trace.jsonl"
  recorded.save(path)
  status = show(["sqtt", str(path)])
  if options.wave is not None:
    status = show(["sqtt", str(path), "--launch", "0", "--wave", str(options.wave)]) or status
  print(f"\nthe largest difference from NumPy is {difference:.1e}; python -m tiny_viz serve {path} shows the waves")
  return status or int(difference > 1e-5 or bool(backend.model.misuse))


if __name__ == "__main__":
  sys.exit(main())
