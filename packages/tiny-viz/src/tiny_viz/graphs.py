"""The graphs of a trace as UOps."""

from __future__ import annotations

import json

from tiny_uop import ParseError, PatternMatcher, RewriteLoop, UOp, UPat, graph_rewrite, rule
from tiny_uop.text.parse import parse_node
from tiny_viz.errors import TraceError
from tiny_viz.trace import SpanInfo, Step, Trace

# a rewrite that was recorded, as a rule: the graphs between two rewrites are not in a trace, they are made again
_RECORDED = PatternMatcher([rule("recorded", UPat.var("u"), lambda ctx, u: ctx.get(u))])


class Graphs:
  """Makes UOps of a trace's nodes, as they are asked for."""

  def __init__(self, trace: Trace) -> None:
    self.trace = trace
    self._made: dict[str, UOp] = {}
    self._counts: dict[int, int] = {}

  def uop(self, number: int) -> UOp:
    """The node with this number. Raises TraceError for what is not IR.

    An argument of a class that this process does not know (it is registered by the package that made the graph) is
    shown as text.
    """
    made, nodes = self._made, self.trace.nodes
    stack = [number]
    while stack:
      top = stack[-1]
      if str(top) in made:
        stack.pop()
      elif missing := [s for s in nodes[top].src if str(s) not in made]:
        stack += missing
      else:
        self._make(top)
        stack.pop()
    return made[str(number)]

  def _make(self, number: int) -> None:
    node = self.trace.nodes[number]
    head = f"%{number} = {node.op} {node.dtype} ({', '.join([f'%{s}' for s in node.src])})"
    arg = "" if node.arg is None else f" arg={node.arg}"
    tag = "" if node.tag is None else f" tag={node.tag}"
    try:
      parse_node(head + arg + tag, self._made)
    except ParseError as first:
      if not arg:
        raise self._not_ir(number, first) from first
      try:
        parse_node(f"{head} arg={json.dumps(node.arg)}{tag}", self._made)
      except ParseError:
        raise self._not_ir(number, first) from first

  def _not_ir(self, number: int, error: ParseError) -> TraceError:
    return TraceError(f"node {number} of the trace is not of the IR: {error}")

  def count(self, number: int | None) -> int:
    """How many nodes a graph has; 0 for none."""
    if number is None:
      return 0
    if number in self._counts:
      return self._counts[number]
    nodes = self.trace.nodes
    seen = {number}
    stack = [number]
    while stack:
      for source in nodes[stack.pop()].src:
        if source not in seen:
          seen.add(source)
          stack.append(source)
    self._counts[number] = len(seen)
    return len(seen)

  def whole(self, step: Step) -> tuple[UOp, UOp]:
    """The graph that a table was run over, before and after one of its rewrites.

    Raises ValueError for a rewrite that was not one of `graph_rewrite`.
    """
    span = self.trace.spans[step.span] if step.span is not None else None
    if span is None or span.kind != "table" or span.before is None:
      raise ValueError(
        f"rewrite {step.number} was of one node on its own: there is no graph around it; leave out --whole"
      )
    place = span.steps.index(step)
    return self._replayed(span, span.steps[:place]), self._replayed(span, span.steps[: place + 1])

  def _replayed(self, span: SpanInfo, steps: list[Step]) -> UOp:
    assert span.before is not None
    changes = {self.uop(step.before): self.uop(step.after) for step in steps}
    try:
      return graph_rewrite(self.uop(span.before), _RECORDED, ctx=changes)
    except RewriteLoop as error:
      raise TraceError(f"the rewrites of {span.name} in the trace contradict each other: {error}") from error
