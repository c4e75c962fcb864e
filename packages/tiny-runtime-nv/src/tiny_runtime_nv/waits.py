"""Where PTX waits for wgmma: first of all in its block.

LLVM moves what is only used behind a loop to behind it, in front of the wait that stands there. ptxas then finds that
threads do something between an instruction's beginning and the wait for it, and makes each wgmma wait for the one
before (C7514). To wait earlier is right in any case.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^(?:\$\w+:|\t@!?%p\d+ bra[^\n]*)\n", re.MULTILINE)
"""What a block begins behind: its label, or the branch that was not taken."""
_WAIT = re.compile(r"\t// begin inline asm\n\twgmma\.wait_group\.sync\.aligned \d+;\n\t// end inline asm\n")
_ARITHMETIC = re.compile(r"(?:\t(?:add|and|bfe|bfi|cvt|mad|mov|mul|or|shf|shl|shr|sub|xor)\.[^\n]*\n)*")


def waits_first(ptx: str) -> str:
  """The same text with each wait that only arithmetic stands before at the beginning of its block."""
  parts, done = [], 0
  for block in _BLOCK.finditer(ptx):
    before = _ARITHMETIC.match(ptx, block.end())
    assert before is not None  # it matches nothing as well
    wait = _WAIT.match(ptx, before.end())
    if wait is not None:
      parts += [ptx[done : block.end()], wait[0], before[0]]
      done = wait.end()
  return "".join([*parts, ptx[done:]])
