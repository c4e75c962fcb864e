"""Hot loops in assembly, and what a processor's ports allow of them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from ports import Loop, cycles, hot_loop, independent, kind_of, why

X86 = """
kernel:                                 # @kernel
\tmovl\t$8, %eax
.LBB0_1:                                # the first tile packs
\tvmovups\t(%rsi), %ymm1
\tvmovups\t%ymm1, (%rdx)
\tvfmadd231ps\t%ymm1, %ymm2, %ymm3
\tvfmadd231ps\t%ymm1, %ymm4, %ymm5
\tdecl\t%eax
\tjne\t.LBB0_1
.LBB0_2:
\tvmovups\t(%rsi), %ymm1                # 32 bytes
\tvfmadd231ps\t(%rdi), %ymm1, %ymm3
\tvfmadd231ps\t%ymm1, %ymm4, %ymm5
\tdecl\t%eax
\tjne\t.LBB0_2
.LBB0_3:                                # counts only
\tdecl\t%eax
\tjne\t.LBB0_3
\tretq
"""
ARM = """
.LBB0_1:
\tldr\tq1, [x0, #16]                    // 16 bytes
\tfmla\tv2.4s, v1.4s, v3.s[0]
\tsubs\tx1, x1, #1
\tb.ne\t.LBB0_1
\tret
"""


def test_the_loop_that_multiplies_is_found() -> None:
  loop = hot_loop(X86, "x86_64")
  assert loop is not None and len(loop.body) == 5 and len(loop.products) == 2
  assert loop.body[0] == "vmovups\t(%rsi), %ymm1" and loop.products[0] == "vfmadd231ps\t(%rdi), %ymm1, %ymm3"
  arm = hot_loop(ARM, "aarch64")
  assert arm is not None and arm.body[0] == "ldr\tq1, [x0, #16]" and arm.products == ("fmla\tv2.4s, v1.4s, v3.s[0]",)
  assert hot_loop("\tretq", "x86_64") is None


def test_products_alone_wait_for_nothing() -> None:
  assert independent(("vfmadd231ps\t(%rdi), %ymm1, %ymm3",) * 2, "x86_64") == [
    "vfmadd231ps\t%ymm0, %ymm1, %ymm2", "vfmadd231ps\t%ymm0, %ymm1, %ymm3"
  ]  # fmt: skip
  assert independent(("fmla\tv9.4s, v8.4s, v7.s[3]",), "aarch64") == ["fmla\tv2.4s, v0.4s, v1.s[3]"]


@pytest.mark.skipif(not any(shutil.which(f"llvm-mca-{n}") for n in (19, 20, 21, 22)), reason="llvm-mca: not installed")
def test_a_chain_of_products_is_slower_than_the_ports() -> None:
  chain = ["vfmadd231ps\t%ymm1, %ymm2, %ymm3"] * 4
  waiting = cycles(chain, "x86_64", "haswell", throughput=False)
  assert waiting == pytest.approx(20, rel=0.05)  # five cycles each
  assert cycles(independent(tuple(chain), "x86_64"), "x86_64", "haswell", throughput=True) == 2.0  # two ports


def test_other_instructions_have_kinds() -> None:
  kinds = {
    "vbroadcastss\t-14348(%r15), %zmm18": "broadcasts", "ld1r\t{ v28.4s }, [x7], #4": "broadcasts",
    "vmaskmovps\t-4(%rdi,%rbx,4), %ymm13, %ymm7": "masks", "vmovups\t64(%r10), %zmm17": "other reads",
    "vmovups\t%ymm2, -672(%r9,%rbx,4)": "writes", "vmovups\t96(%rsp), %ymm2": "spilled registers",
    "ldp\tq30, q31, [x2, #-128]": "other reads", "stp\tq23, q26, [x20]": "writes", "addq\t$8, %rbx": "addresses",
    "ld1\t{ v8.s }[1], [x12]": "lanes loaded one by one", "prfm\tpstl1keep, [x19]": "prefetches",
    "b.lo\t.LBB0_9": "addresses",
  }  # fmt: skip
  assert {line: kind_of(line) for line in kinds} == kinds


@pytest.mark.skipif(not any(shutil.which(f"llvm-mca-{n}") for n in (19, 20, 21, 22)), reason="llvm-mca: not installed")
def test_why_a_loop_misses_its_goal() -> None:
  """Four multiply-adds of two ports, and nine loads of two others: those have to go."""
  products = tuple(f"vfmadd231ps\t%ymm0, %ymm1, %ymm{n}" for n in range(2, 6))
  loads = tuple(f"vmovups\t{32 * n}(%rdi), %ymm{6 + n}" for n in range(9))
  said = why(Loop((*loads, *products), products), "x86_64", "haswell", 2.0, 0.9)
  assert said == "4 products; 0.44 by its ports, 1.00 without 9 other reads"
