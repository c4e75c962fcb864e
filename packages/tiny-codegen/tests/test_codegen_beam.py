"""The search: what it starts from, what it tries around that, and what it keeps for the next process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from codegen_kernels import CASES, check

from tiny_codegen import LLVMRenderer, build_program, compile_kernel, cpu_target
from tiny_codegen.opt.beam import beam_search, before_opts, read, written
from tiny_codegen.opt.neighbours import other_tilings, variations
from tiny_codegen.opt.vectors import choose_opts
from tiny_uop import Context, Opt, OptOps, UOp

WIDE = LLVMRenderer(cpu_target("x86_64-unknown-linux-gnu", "x86-64-v4", ["+avx512f", "+avx512vl", "+fma"]))


class Notebook:
  """Notes of one kernel."""

  def __init__(self, text: str | None = None) -> None:
    self.text = text

  def recall(self) -> str | None:
    return self.text

  def remember(self, found: str) -> None:
    self.text = found


class Clock:
  """A clock that counts candidates, and likes those with some Opts."""

  def __init__(self, *wanted: Opt) -> None:
    self.wanted, self.asked = set(wanted), 0

  def __call__(self, program: UOp) -> float:
    self.asked += 1
    return 1.0 / (1 + len(self.wanted & set(program.src[1].arg.opts)))


def found(kernel: UOp, clock: Clock, notes: Notebook | None) -> Sequence[Opt]:
  with Context(BEAM=1):
    opts: Sequence[Opt] = compile_kernel(kernel, WIDE, measure=clock, notes=notes).src[1].arg.opts
    return opts


def test_a_search_is_not_repeated() -> None:
  kernel = CASES["reduce_rows"](8, 32).kernel
  notes, first, second = Notebook(), Clock(Opt(OptOps.UPCAST, 0, 4)), Clock()
  opts = found(kernel, first, notes)
  assert first.asked > 10 and Opt(OptOps.UPCAST, 0, 4) in opts
  assert notes.text is not None and read(notes.text) == (opts, 0.5)
  assert found(kernel, second, notes) == opts and not second.asked


@pytest.mark.parametrize(
  "text",
  [
    "",
    "nonsense",
    "1.0\n",
    "1.0\ntiny-uop 1\n%0 = BARRIER void ()\n",
    written((Opt(OptOps.SWAP, 7, 9),), 1.0),
  ],
)
def test_notes_that_make_no_sense_are_as_good_as_none(text: str) -> None:
  kernel = CASES["reduce_rows"](8, 32).kernel
  notes, clock = Notebook(text), Clock()
  opts = found(kernel, clock, notes)
  assert clock.asked and notes.text is not None and read(notes.text)[0] == opts


def test_a_search_without_a_result_is_not_kept() -> None:
  def broken(program: UOp) -> float:
    raise RuntimeError("no candidate runs")

  notes = Notebook()
  with Context(BEAM=1):
    compile_kernel(CASES["reduce_rows"](8, 16).kernel, WIDE, measure=broken, notes=notes)
  assert notes.text is None


def test_other_tilings_of_a_product() -> None:
  root = before_opts(CASES["matmul"](64, 64, 64).kernel)
  lists = other_tilings(root, WIDE.target, 40)
  assert choose_opts(root, WIDE.target) == lists[0] and len(set(lists)) == 40
  staged = {sum(o.op is OptOps.STAGE for o in opts) for opts in lists}
  rows = {o.arg for opts in lists for o in opts if o.op is OptOps.UPCAST}
  lanes = {o.axis for opts in lists for o in opts if o.op is OptOps.VECTOR}
  assert {0, 1, 2} <= staged and len(rows) > 1 and lanes == {0, 1}
  assert not other_tilings(before_opts(CASES["reduce_rows"](8, 16).kernel), WIDE.target, 12)


def test_variations_fit_and_mean_the_same(run_kernel: Any) -> None:
  case = CASES["matmul"](12, 40, 12)
  root = before_opts(case.kernel)
  chosen = choose_opts(root, WIDE.target)
  others = list(variations(root, chosen, WIDE.target))
  assert len(others) > 4 and chosen not in others
  # a loop that is padded for its vectors stays padded for other ones
  padded = (Opt(OptOps.PADTO, 1, 32), Opt(OptOps.VECTOR, 1, 16))
  assert (Opt(OptOps.PADTO, 1, 16), Opt(OptOps.VECTOR, 1, 8)) in list(variations(root, padded, WIDE.target))
  for opts in others[:3]:
    check(case, run_kernel(case.kernel, case.arrays, opts))


def test_what_is_chosen_without_a_search_has_to_be_beaten() -> None:
  """Timing is good for 2 %: a result within that is the heuristics'."""
  kernel = CASES["matmul"](16, 64, 16).kernel
  chosen = choose_opts(before_opts(kernel), WIDE.target)

  def clock(program: UOp) -> float:
    return 1.0 if program.src[1].arg.opts == chosen else 0.99

  assert beam_search(kernel, WIDE, clock, 1, build_program) == (chosen, 1.0)
