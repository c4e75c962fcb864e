"""`graph_rewrite`: apply a table of rules to every node of a graph until none applies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiny_uop.context import SPEC
from tiny_uop.observe.hub import active, observed, span
from tiny_uop.pattern import PatternMatcher
from tiny_uop.uop import UOp

_CHAIN_LIMIT = 10_000


class RewriteLoop(RuntimeError):
  """Rules that undo or feed each other; `rules` names those of the cycle."""

  def __init__(self, message: str, rules: tuple[str, ...]) -> None:
    super().__init__(message)
    self.rules = rules


class _Rewriter:
  """One run of a table over a graph. `done` maps every node met to its final form."""

  def __init__(self, table: PatternMatcher, ctx: Any, gate: Callable[[UOp], bool] | None, name: str) -> None:
    self.table, self.ctx, self.gate, self.name = table, ctx, gate, name
    self.done: dict[UOp, UOp] = {}
    self.active: dict[UOp, None] = {}

  def loop(self, node: UOp) -> RewriteLoop:
    """The error for a node whose rewriting led back to itself: runs its rules once more to learn their names."""
    names: list[str] = []
    seen: set[UOp] = set()
    current: UOp = node
    while current not in seen and len(names) < 20:
      seen.add(current)
      step = self.table.rewrite_named(current, self.ctx)
      if step is None:
        inner = next((u for u in reversed(current.toposort) if u not in seen and u in self.active), None)
        if inner is None:
          break
        current = inner
        continue
      names.append(step[0])
      current = step[1]
    rules = tuple(dict.fromkeys(names))
    where = f" in {self.name!r}" if self.name else ""
    return RewriteLoop(f"rewriting{where} does not end: rules {', '.join(rules) or '?'} lead back to {node!r}", rules)

  def fixed_point(self, node: UOp) -> UOp:
    """The node after rules have been applied to it alone until none does."""
    new = self.table.rewrite(node, self.ctx)
    if new is None:
      return node
    seen = {node}
    while new is not None:
      if new in seen or len(seen) > _CHAIN_LIMIT:
        raise self.loop(new)
      seen.add(new)
      node = new
      if node in self.done:
        break
      new = self.table.rewrite(node, self.ctx)
    return node

  def top_down(self, root: UOp) -> UOp:
    """A node is tried before its sources, and again when they have changed."""
    done, active = self.done, self.active
    # entries: (node, None) to start; (node, form) once `form`, its rewritten self, waits for its sources;
    # (node, form, True) once all that is left is to copy the result of `form`
    stack: list[tuple[Any, ...]] = [(root, None)]
    while stack:
      entry = stack.pop()
      node, form = entry[0], entry[1]
      if len(entry) == 3:
        done[node] = done[form]
        active.pop(node, None)
        continue
      if form is None:
        if node in done:
          continue
        if self.gate is not None and not self.gate(node):
          done[node] = node
          continue
        if node in active:
          raise self.loop(node)
        active[node] = None
        form = self.fixed_point(node)
        if form in done:
          done[node] = done[form]
          del active[node]
          continue
        if form is not node and form in active:
          raise self.loop(node)
        stack.append((node, form))
        stack.extend([(s, None) for s in reversed(form.src) if s not in done])
        continue
      new = form.with_src(tuple([done[s] for s in form.src]))
      if new is form or new in done:
        done[node] = done[form] = done.get(new, new)
        done[done[node]] = done[node]
        active.pop(node, None)
      else:
        stack.append((node, new, True))
        stack.append((new, None))
    return done[root]

  def bottom_up(self, root: UOp) -> UOp:
    """A node is tried after its sources; what a rule gives is processed in turn."""
    done, active, rewrite, ctx, gate = self.done, self.active, self.table.rewrite, self.ctx, self.gate
    # entries: (node, 0) to start; (node, 1) when its sources are done; (node, 2, form, result) when `result` is done
    stack: list[tuple[Any, ...]] = [(root, 0)]
    pending = 0  # rewrites whose result is still being processed
    while stack:
      entry = stack.pop()
      node, stage = entry[0], entry[1]
      if stage == 2:
        done[node] = done[entry[2]] = done[entry[3]]
        active.pop(node, None)
        active.pop(entry[2], None)
        pending -= 1
        continue
      if stage == 0:
        if node in done:
          continue
        if gate is not None and not gate(node):
          done[node] = node
          continue
        if node in active:
          raise self.loop(node)
        active[node] = None
        stack.append((node, 1))
        stack.extend([(s, 0) for s in reversed(node.src) if s not in done])
        continue
      form = node.with_src(tuple([done[s] for s in node.src]))
      if form is not node and form in done:
        done[node] = done[form]
        active.pop(node, None)
        continue
      new = rewrite(form, ctx)
      if new is None:
        done[node] = done[form] = form
        active.pop(node, None)
      elif new in done:
        done[node] = done[form] = done[new]
        active.pop(node, None)
      else:
        pending += 1
        if new in active or pending > _CHAIN_LIMIT:
          raise self.loop(new)
        active[form] = None
        stack.append((node, 2, form, new))
        stack.append((new, 0))
    return done[root]


def _rewritten(
  root: UOp, table: PatternMatcher, ctx: Any, bottom_up: bool, gate: Callable[[UOp], bool] | None, name: str
) -> UOp:
  run = _Rewriter(table, ctx, gate, name)
  return run.bottom_up(root) if bottom_up else run.top_down(root)


def graph_rewrite(
  root: UOp,
  table: PatternMatcher,
  ctx: Any = None,
  bottom_up: bool = False,
  gate: Callable[[UOp], bool] | None = None,
  name: str = "",
) -> UOp:
  """Rewrite every node of a graph until no rule of `table` applies.

  Top-down, the default, tries a node before its sources, and again when a source has changed. Bottom-up tries it after
  its sources. Nodes for which `gate` is false are left as they are, with all that is below them. `ctx` is handed to
  replacements that take a `ctx`. Raises RewriteLoop, which names the rules, when the rules lead back to a node.
  """
  if active():
    with span("table", name or "table", root) as work:
      result = work.gives(_rewritten(root, observed(table, name or "table"), ctx, bottom_up, gate, name))
  else:
    result = _rewritten(root, table, ctx, bottom_up, gate, name)
  if SPEC.value >= 2:
    from tiny_uop import spec

    spec.check_nodes(result, name)
  return result
