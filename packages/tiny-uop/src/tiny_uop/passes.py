"""Pass: a named step of a compiler from graph to graph. The scheduler and the code generator are lists of them.

    PASSES = (
      Pass("merge_loops", "Neighbouring loops that walk through memory as one become one.", merge_loops, optional=True),
      Pass("stage", "STAGE becomes loops that fill a buffer.", lower_stage, options=("target",)),
    )

`run_passes` runs them, checks what each gives where `SPEC` says so, and records each as a span.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tiny_uop import spec
from tiny_uop.context import ContextVar
from tiny_uop.locks import uncollected
from tiny_uop.observe import span
from tiny_uop.ops import Ops
from tiny_uop.records import dataclass
from tiny_uop.uop import UOp


@dataclass(frozen=True)
class Pass:
  """A named step from UOp to UOp."""

  name: str
  """What command lines, golden files and reports call it."""
  doc: str
  """What it does, in one sentence."""
  function: Callable[..., UOp]
  """From the graph, and the options, to the graph."""
  options: tuple[str, ...] = ()
  """What the function gets besides the graph: fields of the record that the pipeline gives to `run_passes`."""
  optional: bool = False
  """Graphs that have not been through it are compiled all the same."""
  off: ContextVar[int] | None = None
  """A setting that leaves it out where it is not 0."""
  takes: Ops = Ops.SINK
  """The root of a graph that it takes."""
  gives: spec.Level | None = None
  """The level at which its result is legal. None: it says so itself."""

  def run(self, root: UOp, context: object = None) -> UOp:
    """The graph after the pass; `context` has the options."""
    if self.off is not None and self.off.value:
      return root
    return self.function(root, *[getattr(context, name) for name in self.options])


Observer = Callable[[Pass, UOp], None]


@uncollected()
def run_passes(
  root: UOp, passes: Sequence[Pass], context: object = None, skip: Collection[str] = (), observe: Observer | None = None
) -> UOp:
  """The graph after `passes`, but those that `skip` names; `observe` sees the result of each. Raises ValueError for a
  graph that a pass does not take."""
  for step in passes:
    if step.name in skip:
      continue
    if root.op is not step.takes:
      what = {Ops.SINK: "graph or a kernel (SINK)", Ops.LINEAR: "schedule or a program (LINEAR)"}[step.takes]
      raise ValueError(f"the pass {step.name} takes a {what}, got {root.op.name}: select other passes")
    with span("pass", step.name, root) as work:
      root = work.gives(step.run(root, context))
    if step.gives is not None:
      spec.check_stage(root, step.gives, step.name)
    if observe is not None:
      observe(step, root)
  return root
