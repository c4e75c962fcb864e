"""The passes from tensor graph to schedule, in order. Each takes and gives a UOp, and so each is a filter on text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiny_sched import simple
from tiny_sched.calls import calls_of
from tiny_sched.device_rules import DEVICE_RULES, PART_RULES, on_several_devices, roots_on_devices
from tiny_sched.graph_rules import GRAPH_RULES
from tiny_sched.kernels import kernel_of
from tiny_sched.memory import plan_memory
from tiny_sched.merge_kernels import merge_kernels
from tiny_sched.order import ordered
from tiny_sched.rangeify import Rangeify
from tiny_uop import Ops, UOp, graph_rewrite, is_kernel, spec, value_nodes
from tiny_uop.observe import span
from tiny_uop.records import dataclass


@dataclass(frozen=True)
class Pass:
  """A named step from UOp to UOp. The root of what it takes is a SINK (tensor graph) or a LINEAR (schedule)."""

  name: str
  run: Callable[[UOp], UOp]
  takes: Ops

  @property
  def doc(self) -> str:
    """What the pass does, in one sentence."""
    return " ".join((self.run.__doc__ or "").split())


def _devices(sink: UOp) -> UOp:
  """Values on several devices become a graph on each, with copies between them, by the rules of `device_rules`."""
  if not on_several_devices(value_nodes(sink)):
    return sink
  parts = graph_rewrite(sink, PART_RULES, gate=_is_no_kernel, name="parts of sharded values")
  return roots_on_devices(graph_rewrite(parts, DEVICE_RULES, bottom_up=True, gate=_is_no_kernel, name="devices"))


def _simplify(sink: UOp) -> UOp:
  """Movement, constants and reductions of the tensor graph take a simple form, by the rules of `graph_rules`."""
  # given kernels are left alone: they are of another level
  gate = None if not any(map(is_kernel, sink.toposort)) else _is_no_kernel
  return graph_rewrite(sink, GRAPH_RULES, gate=gate, name="tensor graph")


def _is_no_kernel(u: UOp) -> bool:
  return not is_kernel(u)


def _kernels(sink: UOp) -> UOp:
  """The graph is cut into kernels, in an order that can run; each temporary is a BUFFER of its own."""
  try:
    work = Rangeify(value_nodes(sink))
    kernels = [kernel_of(unit) for unit in merge_kernels(ordered(work.run(), work.histories))]
  finally:
    simple.forget()
  for kernel in kernels:
    if kernel.body.op is Ops.SINK:
      spec.check_stage(kernel.body, "kernel", "schedule")
  return calls_of(kernels)


def _memory(linear: UOp) -> UOp:
  """Temporaries become views of one arena per device; those that are never alive together may share bytes."""
  return plan_memory(linear)


PASSES: tuple[Pass, ...] = (
  Pass("devices", _devices, Ops.SINK),
  Pass("simplify", _simplify, Ops.SINK),
  Pass("kernels", _kernels, Ops.SINK),
  Pass("memory", _memory, Ops.LINEAR),
)
"""The passes from a tensor graph to a schedule, in order."""


def run_passes(root: UOp, passes: Sequence[Pass] = PASSES, observe: Callable[[Pass, UOp], None] | None = None) -> UOp:
  """A normalised graph after `passes`; `observe` sees the result of each."""
  for step in passes:
    if root.op is not step.takes:
      what = {Ops.SINK: "tensor graph (SINK)", Ops.LINEAR: "schedule (LINEAR)"}[step.takes]
      raise ValueError(f"the pass {step.name} takes a {what}, got {root.op.name}: select other passes")
    with span("pass", step.name, root) as work:
      root = work.gives(step.run(root))
    if observe is not None:
      observe(step, root)
  return root
