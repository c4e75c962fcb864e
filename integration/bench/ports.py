"""How near the hot loops of products are to what a processor's ports allow, by LLVM's models of processors.

    hatch run ports                        # all processors and workloads below
    hatch run ports --cpu apple-m1 znver4 --only "matmul 512"
    hatch run ports --show --cpu znver4 --only "matmul 512"   # the loop, and what llvm-mca says of it

Kernels are compiled for each processor, and the loop that multiplies and adds is given to `llvm-mca` (Debian: llvm-19,
llvm-22) twice: as it is, and its multiply-adds alone with nothing to wait for. The second is what the ports
allow; printed is its share of the first, in cycles per iteration. What caches do is not in it, and the models of some
processors are those of older ones: LLVM has none of Apple's after 2013 (Cyclone).

Below the table is why a loop is below its goal: the share if nothing had to wait but for ports, and which instructions
have to be left out for the goal to be reached then, those first that cost most.

    hatch run ports --sve                  # products of NEON and of SVE: multiply-adds in a cycle
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

AVX2 = "avx avx2 fma f16c bmi bmi2 lzcnt movbe popcnt sse3 ssse3 sse4.1 sse4.2 xsave"
AVX512 = f"{AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
VNNI = f"{AVX512} avx512vnni avx512bf16 avx512vbmi avx512vbmi2 avx512ifma avx512bitalg avx512vpopcntdq"
NEON = "neon fullfp16 dotprod lse"
PROCESSORS = {
  "haswell": ("x86_64", AVX2), "skylake-avx512": ("x86_64", AVX512), "sapphirerapids": ("x86_64", f"{VNNI} avx512fp16"),
  "znver3": ("x86_64", AVX2), "znver4": ("x86_64", VNNI), "znver5": ("x86_64", f"{VNNI} avxvnni"),
  "apple-m1": ("aarch64", NEON), "apple-m4": ("aarch64", f"{NEON} i8mm bf16"),
  "neoverse-v1": ("aarch64", f"{NEON} i8mm bf16 sve"), "neoverse-v2": ("aarch64", f"{NEON} i8mm bf16 sve sve2"),
}  # fmt: skip
"""Architecture, and the features that code is generated for; AMX and SME are left out."""
SVE = {"neoverse-v1": (f"{NEON} sve", 256), "a64fx": ("neon fullfp16 lse sve", 512)}
"""Processors with long registers of SVE: features, and how many bits those have."""
WORKLOADS = (
  "matmul 1024", "matmul 512, both transposed", "conv 8×64×56² 64×64×3²", "conv 8×256×14² 256×256×3²",
  "conv 8×64×56² 64×64×1²", "conv 8×512×28² 128×512×1²", "conv 8×3×224² 64×3×7² /2",
  "conv depthwise 8×144×56² 3²", "conv 8×128×28², 4 groups of 3²", "matmul 1024, int8", "matmul 1024, bf16",
)  # fmt: skip
GOALS = {"depthwise": 0.8, "matmul": 0.9, "3²": 0.9}
OTHERS = 0.8
"""The goal of workloads with none of those words in their names."""
KINDS = {
  "spilled registers": r".*[(\[](%rsp|sp)\b",
  "broadcasts": r"v?p?broadcast|ld\dr\t|dup\t",
  "masks": r"vp?maskmov|vp?cmp|k(mov|and|or|x|n|sh|unpck)|.*%k\d|vpack|vpmov[zs]x|vpand|vpor|vpsll|and\tv|csel|cset",
  "lanes loaded one by one": r"ld1\t|ins\t|ldr\ts|vinsert|vextract|vperm|vunpck|vshuf|vpinsr|vblend",
  "other reads": r"v?mov[ua]p[sd]\t[^%].*\(|v?movdq[ua]\d*\t[^%].*\(|v?movs[sd]\t[^%].*\(|ld[pu]?r?\t|ldur",
  "writes": r"v?mov\w+\t%.*\)$|st[pu]?r?\t|stur",
  "prefetches": r"prefetch|prf",
  "addresses": r"(add|sub|cmp|inc|dec|lea|mov|shl|and|or|xor|j|b|lsl|madd|tst|cs)[a-z.]*\t(%r|%e|x|w|\$|\.|\d)",
}
"""Instructions of a loop other than multiply-adds, by what they begin with: the first that fits."""
ITERATIONS = 200
JUMP = re.compile(r"^(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)$")
LABEL = re.compile(r"^(\.?L?[\w.$]+):")
MULTIPLY_ADD = re.compile(
  r"^(?:vfn?m(?:add|sub)|vmulp[sd]|vpdp|vdpbf|fml[as]|fmul|[su]dot|usdot|[su]mmla|usmmla|bfmmla|bfdot|fmadd?|fmsb)"
)
"""A multiplication is one: the first product of a sum that is written out."""


@dataclass(frozen=True)
class Loop:
  """An innermost loop: its instructions, and those of them that multiply and add."""

  body: tuple[str, ...]
  products: tuple[str, ...]


def hot_loop(assembly: str, arch: str) -> Loop | None:
  """That of a kernel's assembly in which most time goes to multiply-adds; None where no loop multiplies."""
  comment = "#" if arch == "x86_64" else "//"
  lines = [line.split(comment)[0].strip() for line in assembly.splitlines()]
  lines = [line for line in lines if line and not (line.startswith(".") and not LABEL.match(line))]
  places = {found[1]: n for n, line in enumerate(lines) if (found := LABEL.match(line))}
  found_loops: list[Loop] = []
  for n, line in enumerate(lines):
    name, _, operands = line.partition("\t")
    target = operands.split(",")[-1].strip()
    if not JUMP.match(name) or not places.get(target, n) < n:
      continue
    body = lines[places[target] : n + 1]
    if any(JUMP.match(i.split("\t")[0]) for i in body[:-1]) or any(LABEL.match(i) for i in body[1:]):
      continue  # there is a loop, or a way out, in it
    instructions = tuple(i for i in body if not LABEL.match(i))
    products = tuple(i for i in instructions if MULTIPLY_ADD.match(i))
    if products:
      found_loops.append(Loop(instructions, products))
  # the first tile packs in a loop of its own, which runs seldom: of those with about as many products, the shortest
  most = max((len(loop.products) for loop in found_loops), default=0)
  long = [loop for loop in found_loops if 2 * len(loop.products) >= most]
  return max(long, key=lambda loop: len(loop.products) / len(loop.body), default=None)


def independent(products: tuple[str, ...], arch: str) -> list[str]:
  """As many of the same multiply-adds, each with results of its own that nothing waits for, and no memory read."""
  made = []
  for n, line in enumerate(products):
    name, _, operands = line.partition("\t")
    if arch == "x86_64":
      width = (re.search(r"%([xyz])mm", operands) or ["", "z"])[1]
      made.append(f"{name}\t%{width}mm0, %{width}mm1, %{width}mm{2 + n % 14}")
    else:
      parts = [part.strip() for part in operands.split(",")]
      suffix = [part[part.index(".") :] if "." in part else "" for part in parts]
      made.append(f"{name}\tv{2 + n % 14}{suffix[0]}, v0{suffix[1]}, v1{suffix[2]}")
  return made


@cache
def tool() -> str:
  """The newest llvm-mca. Raises SystemExit where there is none."""
  found = [path for version in (22, 21, 20, 19, "") if (path := shutil.which(f"llvm-mca-{version}".rstrip("-")))]
  if not found:
    raise SystemExit("llvm-mca: not installed. On Debian, apt-get install llvm-19")
  return found[0]


def cycles(lines: list[str], arch: str, cpu: str, *, throughput: bool) -> float:
  """Cycles of one iteration: of the simulation, or what the ports alone allow."""
  command = [tool(), f"-mtriple={arch}-linux-gnu", f"-mcpu={cpu}", f"-iterations={ITERATIONS}", "-instruction-info=0"]
  done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
  if done.returncode:
    raise SystemExit(f"{' '.join(command)}:\n{done.stderr[:1000]}")
  if throughput:
    return float(re.findall(r"Block RThroughput:\s*([\d.]+)", done.stdout)[0])
  return int(re.findall(r"Total Cycles:\s*(\d+)", done.stdout)[0]) / ITERATIONS


def assembly_of(name: str, cpu: str, features: str = "", scalable_bits: int = 0) -> list[str]:
  """The kernels of a workload as assembly for a processor; with other features than listed, and with SVE, if given."""
  from suite.launching import kernels_of

  from tiny_codegen import compile_kernel
  from tiny_runtime.llvm import compile_assembly
  from tiny_runtime_cpu.compiler import renderer_for
  from tiny_runtime_cpu.host import Arch
  from tiny_runtime_cpu.machine import PASSES

  arch, listed = ("aarch64", features) if features else PROCESSORS[cpu]
  target = Arch(
    f"{arch}-unknown-linux-gnu", cpu, ",".join(f"+{feature}" for feature in listed.split()), scalable_bits=scalable_bits
  )
  made: list[Any] = [compile_kernel(kernel, renderer_for(target)) for kernel in kernels_of(name)]
  return [compile_assembly(str(program.src[2].arg), target.processor, PASSES) for program in made]


def why(loop: Loop, arch: str, cpu: str, least: float, goal: float) -> str:
  """What has to be left out of a loop for its goal to be reached, and what is left for the ports then."""
  body, found = list(loop.body), list[str]()
  left = {kind: [i for i in body if not MULTIPLY_ADD.match(i) and kind_of(i) == kind] for kind in KINDS}
  reached = alone = least / cycles(body, arch, cpu, throughput=True)
  if alone >= goal:
    without = {kind: [i for i in body if i not in lines] for kind, lines in left.items() if lines}
    shares = {kind: least / cycles(lines, arch, cpu, throughput=False) for kind, lines in without.items()}
    kind = max(shares, key=lambda each: shares[each])
    waits = f"{shares[kind]:.2f} without waiting for {len(left[kind])} {kind}"
    return f"{len(loop.products)} products; {alone:.2f} by its ports, {waits}"
  while reached < goal and any(left.values()):
    without = {kind: [i for i in body if i not in lines] for kind, lines in left.items() if lines}
    kind = min(without, key=lambda each: cycles(without[each], arch, cpu, throughput=True))
    found.append(f"{len(left.pop(kind))} {kind}")
    body = without[kind]
    reached = least / cycles(body, arch, cpu, throughput=True)
  ports = (
    f"{alone:.2f} by its ports, {reached:.2f} without {', '.join(found)}" if found else f"{alone:.2f} by its ports"
  )
  return f"{len(loop.products)} products; {ports}"


def kind_of(instruction: str) -> str | None:
  """Which of KINDS an instruction is."""
  return next((kind for kind, begins in KINDS.items() if re.match(begins, instruction)), None)


def share(name: str, cpu: str, goal: float, show: bool = False) -> tuple[float, str] | None:
  """The share of what the ports allow, of the loop that multiplies most, and why it is below the goal; None where no
  loop multiplies."""
  arch = PROCESSORS[cpu][0]
  found = [loop for text in assembly_of(name, cpu) if (loop := hot_loop(text, arch)) is not None]
  if not found:
    return None
  loop = max(found, key=lambda each: len(each.products))
  whole = cycles(list(loop.body), arch, cpu, throughput=False)
  least = cycles(independent(loop.products, arch), arch, cpu, throughput=True)
  if show:
    print("\n".join(loop.body), f"\n{len(loop.products)} multiply-adds: {least:.1f} of {whole:.1f} cycles")
  return least / whole, why(loop, arch, cpu, least, goal) if least / whole < goal else ""


def multiply_adds_in_a_cycle(name: str, cpu: str, features: str, bits: int) -> float:
  """Of the loop that multiplies most, with registers of SVE of so many bits (0: of NEON's)."""
  loops = [loop for text in assembly_of(name, cpu, features, bits) if (loop := hot_loop(text, "aarch64")) is not None]
  if not loops:
    return 0.0
  loop = max(loops, key=lambda each: len(each.products))
  lanes = sum((bits if re.match(r"\w+\tz", product) else 128) // 32 for product in loop.products)
  return lanes / cycles(list(loop.body), "aarch64", cpu, throughput=False)


def compare_sve(names: tuple[str, ...] | list[str]) -> None:
  """Prints a row for each workload: multiply-adds in a cycle with NEON and with SVE."""
  from tiny_codegen import processors

  processors.LEAST_SCALABLE = 1  # SVE where it is asked for, also where NEON would be chosen
  print(
    f"{'multiply-adds of float32 in a cycle':40}"
    + "".join(f"{f'{cpu} NEON':>18}{f'SVE {bits}':>10}" for cpu, (_, bits) in SVE.items())
  )
  for name in names:
    cells = [
      (multiply_adds_in_a_cycle(name, cpu, features, 0), multiply_adds_in_a_cycle(name, cpu, features, bits))
      for cpu, (features, bits) in SVE.items()
    ]
    print(f"{name:40}" + "".join(f"{neon:18.1f}{sve:10.1f}" for neon, sve in cells), flush=True)


def main() -> None:
  """See the head of this file."""
  parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
  parser.add_argument("--cpu", nargs="+", choices=PROCESSORS, default=list(PROCESSORS), metavar="NAME")
  parser.add_argument("--only", nargs="+", default=WORKLOADS, metavar="NAME", help="names of workloads of `bench`")
  parser.add_argument("--sve", action="store_true", help="compare NEON with SVE instead")
  parser.add_argument("--show", action="store_true", help="print the loops")
  options = parser.parse_args()
  if options.sve:
    return compare_sve([name for name in options.only if "int8" not in name and "bf16" not in name])
  width = max(map(len, options.only))
  print(" " * width, *[cpu.rjust(14) for cpu in options.cpu])
  missed = []
  for name in options.only:
    goal = next((goal for word, goal in GOALS.items() if word in name), OTHERS)
    cells = []
    for cpu in options.cpu:
      found = share(name, cpu, goal, options.show)
      cells.append("–" if found is None else f"{found[0]:.2f}{'!' if found[1] else ' '}")
      if found is not None and found[1]:
        missed.append(f"{name} on {cpu}: {found[0]:.2f}, goal {goal}: {found[1]}")
    print(name.ljust(width), *[cell.rjust(14) for cell in cells], flush=True)
  print(f"\nbelow their goals: {len(missed)}")
  print("\n".join(missed))


if __name__ == "__main__":
  sys.path.insert(0, str(Path(__file__).parent))
  main()
