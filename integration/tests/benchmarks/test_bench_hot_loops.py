"""Loops of machine code and what a profiler's samples say of them: text in, text out."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from suite.hot_loops import costs, instructions, loops, shares, table

CODE = """
0000000000000000 <kernel>:
   0:	xor    %eax,%eax
   2:	vmovups (%rsi,%rax,4),%zmm0
   9:	vmovups %zmm0,(%rdi,%rax,4)
  10:	add    $0x10,%rax
  14:	cmp    $0x100,%rax
  1a:	jb     2 <kernel+0x2>
  20:	xor    %ecx,%ecx
  22:	xor    %edx,%edx
  24:	vmovups (%rdi,%rdx,4),%zmm1
  2b:	vfmadd231ps (%rbx,%rdx,4){1to16},%zmm1,%zmm2
  32:	inc    %rdx
  35:	cmp    $0xff,%rdx
  3c:	jb     24 <kernel+0x24>
  42:	vmovups %zmm2,(%r8,%rcx,4)
  49:	inc    %rcx
  4c:	jne    22 <kernel+0x22>
  52:	ret
"""


def test_loops_and_what_they_do() -> None:
  found = loops(instructions(CODE))
  assert [(loop.first, loop.last, loop.depth, loop.kind) for loop in found] == [
    (0x2, 0x1A, 0, "copies or packs"),
    (0x22, 0x4C, 0, "copies or packs"),
    (0x24, 0x3C, 1, "multiplies and adds"),
  ]
  assert [len(loop.instructions) for loop in found] == [5, 4, 5], "those of the loop inside are not counted"
  assert [loop.products for loop in found] == [0, 0, 1]


def test_samples_belong_to_the_innermost_loop() -> None:
  found = loops(instructions(CODE))
  parts = shares(found, [0x9, 0x2B, 0x2B, 0x32, 0x42, 0x24, 0x2B, 0x52])
  assert parts == {found[0]: 1 / 8, found[2]: 5 / 8, found[1]: 1 / 8, None: 1 / 8}
  assert [line.split()[:2] for line in table(found, parts)[1:]] == [
    ["12.5%", "2–1a"], ["12.5%", "22–4c"], ["62.5%", "24–3c"], ["12.5%", "outside"],
  ]  # fmt: skip
  assert [row[:4] for row in costs(found, parts)] == [
    (1 / 8, "2–1a", 5, 0), (1 / 8, "22–4c", 4, 0), (5 / 8, "24–3c", 5, 1), (1 / 8, "", 0, 0),
  ]  # fmt: skip


def test_other_processors() -> None:
  code = "  4: \tfmla\tv0.4s, v1.4s, v2.s[0]\n  8: \tsubs\tx0, x0, #0x1\n  c: \tb.ne\t4 <k+0x4>  // b.any\n"
  (loop,) = loops(instructions(code))
  assert (loop.first, loop.last, loop.products) == (4, 0xC, 1)
