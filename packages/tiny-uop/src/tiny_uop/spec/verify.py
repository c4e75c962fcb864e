"""Which graphs are legal at which level. `check` raises SpecError, which names the node, the level and what is
expected.

`tables.py` has a row for each form of an operation; here are the questions about whole graphs. `SPEC=1` checks between
stages: each stage calls `check_stage` (`stage.py`) on the graphs that it takes and gives. `SPEC=2` also checks after
every rewrite (`UOp.checked`), and has every memory access proved to be in bounds (`tiny_uop.proof.bounds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from tiny_uop.args import KernelInfo
from tiny_uop.kernel import is_kernel
from tiny_uop.ops import Ops
from tiny_uop.spec.rows import Row
from tiny_uop.spec.tables import LEVELS

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

Level = Literal["tensor", "schedule", "kernel", "program"]
"""The levels of graphs, in the order in which the stages make them."""


class SpecError(ValueError):
  """An illegal graph: `node` at `level` is not what is `expected`."""

  def __init__(self, node: UOp, level: str, expected: str, stage: str = "") -> None:
    sources = ", ".join(f"{s.op.name} {s.dtype}" for s in node.src)
    arg = "" if node.arg is None else f" arg={node.arg!r}"
    tag = "" if node.tag is None else f" tag={node.tag!r}"
    after = f" after {stage!r}" if stage else ""
    found = f"{node.op.name} {node.dtype} ({sources}){arg}{tag}"
    super().__init__(f"illegal at the {level} level{after}: {found}; expected {expected}")
    self.node, self.level, self.expected = node, level, expected


def _holds(row: Row, node: UOp) -> bool:
  try:
    return row.holds(node)
  except Exception:  # a malformed node (text from elsewhere) may make any question about it fail
    return False


def _check_node(node: UOp, level: str, rows: tuple[Row, ...], stage: str = "") -> None:
  if any(_holds(row, node) for row in rows):
    return
  if rows:
    raise SpecError(node, level, " or ".join(row.expects for row in rows), stage)
  levels = ", ".join(name for name, table in LEVELS.items() if node.op in table)
  raise SpecError(node, level, f"no {node.op.name} here: it belongs to the levels {levels}", stage)


def check(root: UOp, level: Level) -> None:
  """Check a whole graph against the spec of one level: "tensor", "schedule", "kernel" or "program".

  Raises SpecError for the first illegal node, sources first; ValueError for an unknown level.
  """
  if level not in get_args(Level):
    raise ValueError(f"unknown level {level!r}: expected one of {', '.join(get_args(Level))}")
  table = LEVELS[level]
  # bodies of calls and parts of programs are graphs of other levels
  inner = {Ops.PROGRAM} if level == "tensor" else {Ops.CALL, Ops.PROGRAM}
  for node in root.walk(lambda u: u.op not in inner and (u is root or not is_kernel(u))):
    _check_node(node, level, table.get(node.op, ()))
    if node.tag is not None:
      raise SpecError(node, level, "no tag: passes remove theirs before the stage ends")
    if node.op is Ops.CALL:
      _check_call(node, level)
    elif node.op is Ops.PROGRAM:
      check(node.src[1], "program")
  if level == "kernel":
    _check_loops(root)
  elif level == "program" and root.op is Ops.LINEAR:
    _check_order(root)


def _check_call(call: UOp, level: Level) -> None:
  if call.src[0].op is Ops.SINK:
    check(call.src[0], "kernel")
  if level == "tensor":
    return  # its inputs are part of the graph
  for argument in call.src[1:]:
    for node in argument.walk():
      _check_node(node, "schedule", LEVELS["schedule"].get(node.op, ()))


def _check_loops(root: UOp) -> None:
  if root.op is not Ops.SINK or not isinstance(root.arg, KernelInfo):
    raise SpecError(root, "kernel", "a SINK with KernelInfo as the root")
  loops: dict[int, UOp] = {}
  for node in root.toposort:
    if node.op is Ops.RANGE and loops.setdefault(node.arg[0], node) is not node:
      raise SpecError(node, "kernel", f"one loop per id; {loops[node.arg[0]]!r} has this one")
  if root.ranges:
    names = ", ".join(sorted(str(r.arg[0]) for r in root.ranges))
    raise SpecError(root, "kernel", f"every loop closed by END or REDUCE; open are the loops {names}")


def _check_order(linear: UOp) -> None:
  """Values come before their uses, and loops and IFs are properly nested pairs."""
  place = {node: i for i, node in enumerate(linear.src)}
  open_blocks: list[UOp] = []
  for i, node in enumerate(linear.src):
    if (late := next((s for s in node.src if place.get(s, -1) > i), None)) is not None:
      raise SpecError(node, "program", f"its source {late!r} (instruction {place[late]}) before it (instruction {i})")
    if node.op in (Ops.RANGE, Ops.IF):
      open_blocks.append(node)
    elif node.op in (Ops.END, Ops.ENDIF):
      closed = [s for s in node.src if s.op in (Ops.RANGE, Ops.IF)]
      for block in reversed(closed):
        if not open_blocks or open_blocks.pop() is not block:
          raise SpecError(node, "program", f"to close the innermost open block, which is not {block!r}")
  if open_blocks:
    raise SpecError(open_blocks[-1], "program", "an END or ENDIF that closes it")


def check_nodes(root: UOp, stage: str = "") -> None:
  """Check that every node is legal at some level, tags allowed: what holds in the middle of a stage. `stage` is for the
  message."""
  for node in root.toposort:
    _check_node(node, "any", _ANY_LEVEL[node.op], stage)


_ANY_LEVEL = {op: tuple(dict.fromkeys(r for table in LEVELS.values() for r in table.get(op, ()))) for op in Ops}
