"""The passes from tensor graph to schedule, in order. Each takes and gives a UOp, and so each is a filter on text."""

from __future__ import annotations

from functools import partial
from typing import Any

from tiny_sched.devices.ranks import collectives_in_order, digest_of, ranks_of
from tiny_sched.devices.rules import DEVICE_RULES, PART_RULES, on_several_devices, roots_on_devices
from tiny_sched.graph_rules import GRAPH_RULES
from tiny_sched.index import clear_memos
from tiny_sched.kernels import calls_of, kernel_of
from tiny_sched.memory_plan import plan_memory
from tiny_sched.merge_kernels import merge_kernels
from tiny_sched.order import ordered
from tiny_sched.rangeify import rangeify
from tiny_sched.room import RoomOf, unknown
from tiny_sched.work import tracker
from tiny_uop import Ops, PatternMatcher, UOp, graph_rewrite, is_kernel, spec, value_nodes
from tiny_uop.locks import undivided
from tiny_uop.passes import Pass


def per_device(sink: UOp) -> UOp:
  """Values on several devices become a graph on each, with copies between them, by the rules of `device_rules`."""
  if not on_several_devices(value_nodes(sink)):
    return sink
  graph, among = digest_of(sink), ranks_of(sink)
  parts = _rewritten(sink, PART_RULES, gate=_is_no_kernel, name="parts of sharded values")
  each = roots_on_devices(_rewritten(parts, DEVICE_RULES, bottom_up=True, gate=_is_no_kernel, name="devices"))
  return collectives_in_order(each, graph, among)


def simplify_graph(sink: UOp) -> UOp:
  """Movement, constants and reductions of the tensor graph take a simple form, by the rules of `graph_rules`."""
  # given kernels are left alone: they are of another level
  gate = None if not any(map(is_kernel, sink.toposort)) else _is_no_kernel
  return _rewritten(sink, GRAPH_RULES, gate=gate, name="tensor graph")


def _rewritten(sink: UOp, table: PatternMatcher, **options: Any) -> UOp:
  """`graph_rewrite`, which the tracker sees."""
  became: dict[UOp, UOp] | None = None if tracker.places is None else {}
  new = graph_rewrite(sink, table, became=became, **options)
  if became is not None:
    tracker.rewritten(became, new)
  return new


def _is_no_kernel(u: UOp) -> bool:
  return not is_kernel(u)


def cut_into_kernels(sink: UOp, room_of: RoomOf) -> UOp:
  """Fusion: the graph is cut into kernels, in an order that can run; each temporary is a BUFFER. Where many threads
  share a kernel, long sums with few results are two."""
  try:
    # what nodes know of themselves is used again by the steps that follow, so the context stays until the last one
    context = rangeify(value_nodes(sink))
    kernels = [kernel_of(item) for item in merge_kernels(ordered(context.items, context.versions))]
    if any(room_of(k.device).threads for k in kernels if k.body.op is Ops.SINK):
      with undivided:  # few machines have so many
        from tiny_sched.products.split import split_sums
      kernels = split_sums(kernels, lambda device: room_of(device).threads)
  finally:
    clear_memos()
  for kernel in kernels:
    if kernel.body.op is Ops.SINK:
      spec.check_stage(kernel.body, "kernel", "schedule")
  tracker.scheduled([kernel.nodes for kernel in kernels])
  return calls_of(kernels)


def stacked(sink: UOp) -> UOp:
  """Sums of many small products become one product, of stacked operands."""
  nodes = value_nodes(sink)
  if not any(_adds_sums(u.src[0]) for u in nodes if u.op is Ops.REDUCE and u.arg[0] is Ops.ADD):
    return sink
  with undivided:  # few graphs need it
    from tiny_sched.products.stacked import stack_products
  return stack_products(sink, nodes)


def _adds_sums(u: UOp) -> bool:
  return u.op is Ops.ADD and any(s.op is Ops.ADD for s in u.src)


def in_blocks(sink: UOp, room_of: RoomOf) -> UOp:
  """Sums weighted by a softmax become kernels of blocks, which store where the graph wants their results."""
  nodes = value_nodes(sink)
  if all(u.op is not Ops.EXP for u in nodes):
    return sink
  with undivided:  # few graphs need these
    from tiny_sched.softmax.candidates import may_be_weighted

    if not any(map(may_be_weighted, nodes)):
      return sink
    from tiny_sched.softmax.gradients import gradients_in_blocks
    from tiny_sched.softmax.online_softmax import sums_in_blocks

  new = sums_in_blocks(gradients_in_blocks(sink, room_of), room_of)
  return sink if new is sink else simplify_graph(new)


def passes_for(room_of: RoomOf) -> tuple[Pass, ...]:
  """The passes from a tensor graph to a schedule, in order. `room_of` says what a device has for a kernel."""
  return (
    Pass("devices", "Values on several devices become a graph on each, with copies between them.", per_device),
    Pass("simplify", "Movement, constants and reductions of the tensor graph take a simple form.", simplify_graph),
    Pass("stack", "Sums of many small products become one product, of stacked operands.", stacked),
    Pass("blocks", "Sums weighted by a softmax (attention) become kernels of blocks, which never hold all weights.",
         partial(in_blocks, room_of=room_of)),
    Pass("kernels", "Fusion: the graph is cut into kernels, in an order that can run; each temporary is a BUFFER.",
         partial(cut_into_kernels, room_of=room_of)),
    Pass("memory", "Temporaries become views of one arena per device; those never alive together may share bytes.",
         plan_memory, takes=Ops.LINEAR),
  )  # fmt: skip


PASSES = passes_for(unknown)
"""The passes from a tensor graph to a schedule, in order."""
