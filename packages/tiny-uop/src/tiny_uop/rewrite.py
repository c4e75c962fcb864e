"""`graph_rewrite`: apply a table of rules to every node of a graph until none applies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tiny_uop.context import SPEC
from tiny_uop.dtype import DType, dtypes
from tiny_uop.graph import rebuild
from tiny_uop.observe.hub import active, observed, span
from tiny_uop.ops import Ops
from tiny_uop.pattern import PatternMatcher

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

_CHAIN_LIMIT = 10_000


class RewriteLoop(RuntimeError):
  """Rules that undo or feed each other; `rules` names those of the cycle."""

  def __init__(self, message: str, rules: tuple[str, ...]) -> None:
    super().__init__(message)
    self.rules = rules


class _Rewriter:
  """One run of a table over a graph. `done` maps every node met to its final form."""

  def __init__(
    self, table: PatternMatcher, ctx: Any, gate: Callable[[UOp], bool] | None, name: str, history: bool = True
  ) -> None:
    self.table, self.ctx, self.gate, self.name, self.history = table, ctx, gate, name, history
    # with neither context nor gate a finished node is finished for good, and says so itself: True with its history,
    # False without
    self.mark = table.mark if ctx is None and gate is None else ""
    if not history:
      self.gate = lambda node: node.op is not Ops.AFTER
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
    done, active, gate, candidates = self.done, self.active, self.gate, self.table.candidates
    concerned: dict[tuple[Ops, DType], bool] = {}
    # entries: a node to start; (node, form) once `form`, its rewritten self, waits for its sources;
    # (node, form, True) once all that is left is to copy the result of `form`
    stack: list[Any] = [root]
    while stack:
      entry = stack.pop()
      if type(entry) is not tuple:
        node = entry
        if node in done:
          continue
        if gate is not None and not gate(node):
          done[node] = node
          continue
        if node in active:
          raise self.loop(node)
        kind = node.op, node.dtype
        if (concern := concerned.get(kind)) is None:
          concern = concerned[kind] = bool(candidates(*kind))
        form = self.fixed_point(node) if concern else node
        if form in done:
          done[node] = done[form]
          continue
        if form is not node and form in active:
          raise self.loop(node)
        if missing := [s for s in form.src if s not in done]:
          active[node] = None
          stack.append((node, form))
          missing.reverse()
          stack += missing
          continue
      elif len(entry) == 2:
        node, form = entry
      else:
        node, form, _ = entry
        done[node] = done[form]
        active.pop(node, None)
        continue
      new = form.with_src(tuple([done[s] for s in form.src]))
      if new is form or new in done:
        result = done[node] = done[form] = done.get(new, new)
        done[result] = result
        active.pop(node, None)
      else:
        active[node] = None
        stack.append((node, new, True))
        stack.append(new)
    return done[root]

  def over_finished(self, node: UOp) -> UOp:
    """`bottom_up` of a node whose sources mostly have their final forms: one look where no rule applies."""
    mark, history = self.mark, self.history
    known = node.__dict__.get(mark)
    if known or (known is False and not history):
      return node
    whole = node.op is not Ops.AFTER
    for s in node.src:
      if not s.__dict__.get(mark):
        if history or mark not in s.__dict__:
          return self.bottom_up(node)
        whole = False
    if (self.gate is not None and not self.gate(node)) or (new := self.table.rewrite(node)) is None:
      node.__dict__[mark] = history or whole
      return node
    return self.bottom_up(new)

  def bottom_up(self, root: UOp) -> UOp:
    """A node is tried after its sources; what a rule gives is processed in turn."""
    done, active, rewrite, ctx, gate = self.done, self.active, self.table.rewrite, self.ctx, self.gate
    mark, history = self.mark, self.history
    # entries: a node to start; (node,) when its sources are done; (node, form, result) when `result` is done
    stack: list[Any] = [root]
    pending = 0  # rewrites whose result is still being processed
    while stack:
      entry = stack.pop()
      if type(entry) is not tuple:
        node = entry
        if node in done:
          continue
        known = node.__dict__.get(mark)
        if known or (known is False and not history):
          done[node] = node
          continue
        if gate is not None and not gate(node):
          done[node] = node
          if mark:
            node.__dict__[mark] = False
          continue
        if node in active:
          raise self.loop(node)
        if missing := [s for s in node.src if s not in done]:
          active[node] = None
          stack.append((node,))
          missing.reverse()
          stack += missing
          continue
      elif len(entry) == 1:
        node = entry[0]
        active.pop(node, None)
      else:
        node, form, new = entry
        done[node] = done[form] = done[new]
        active.pop(node, None)
        active.pop(form, None)
        pending -= 1
        continue
      src = tuple([done[s] for s in node.src])
      form = node if src == node.src else node.with_src(src)
      if form is not node and form in done:
        done[node] = done[form]
        continue
      # one that was finished without its history: no rule has been found to apply
      tried = form.__dict__.get(mark) is False and form.op is not Ops.AFTER
      if tried or (new := rewrite(form, ctx)) is None:
        done[node] = done[form] = form
        if mark:
          form.__dict__[mark] = history or all(s.__dict__.get(mark) for s in form.src)  # see `forget`
      elif new in done:
        done[node] = done[form] = done[new]
      else:
        pending += 1
        active[node] = active[form] = None
        if new in active or pending > _CHAIN_LIMIT:
          raise self.loop(new)
        stack.append((node, form, new))
        stack.append(new)
    return done[root]


def graph_rewrite(
  root: UOp,
  table: PatternMatcher,
  ctx: Any = None,
  bottom_up: bool = False,
  gate: Callable[[UOp], bool] | None = None,
  name: str = "",
  became: dict[UOp, UOp] | None = None,
  history: bool = True,
) -> UOp:
  """Rewrite every node of a graph until no rule of `table` applies.

  Top-down, the default, tries a node before its sources, and again when a source has changed. Bottom-up tries it after
  its sources. Nodes for which `gate` is false are left as they are, with all that is below them. `ctx` is handed to
  replacements that take a `ctx`. `became` is told what each node has become. Without `history` it is an expression that
  is rewritten, bottom-up, and not what happened to memory before: AFTERs stay as they are. Raises RewriteLoop, which
  names the rules, when the rules lead back to a node.
  """

  def run(table: PatternMatcher) -> UOp:
    if ctx is None and gate is None and became is None and not active() and _final(root, table, bottom_up, history):
      return root
    rewriter = _Rewriter(table, ctx, gate, name, history)
    result = rewriter.bottom_up(root) if bottom_up else rewriter.top_down(root)
    if became is not None:
      became.update(rewriter.done)
    return result

  return _watched(root, table, name, run)


def rewrite_once(root: UOp, table: PatternMatcher, name: str = "") -> UOp:
  """The graph with what the first rule that applies makes of each node, which has got its new sources before. What a
  rule gives is final: for tables whose rules leave nothing to each other."""

  def run(table: PatternMatcher) -> UOp:
    ops = frozenset().union(*[row.pattern.op or Ops for row in table.rules])
    return rebuild(root, lambda _, node: table.rewrite(node) if node.op in ops else None)

  return _watched(root, table, name, run)


def _final(root: UOp, table: PatternMatcher, bottom_up: bool, history: bool) -> bool:
  """Whether no rule applies to any node: most graphs have nothing of what a target lacks. Bottom-up the root says
  whether this is known."""
  if bottom_up:
    known = root.__dict__.get(table.mark)
    return bool(known) or (known is False and not history)
  nodes = root.toposort
  concerned = {kind for kind in {(u.op, u.dtype) for u in nodes} if table.candidates(*kind)}
  return not concerned or not any((u.op, u.dtype) in concerned and table.rewrite(u) is not None for u in nodes)


def substitute_rewritten(
  root: UOp,
  changes: Sequence[Mapping[UOp, UOp]],
  table: PatternMatcher,
  inside: Callable[[UOp], bool],
  change: Callable[[UOp], UOp],
  name: str = "",
  history: bool = True,
) -> list[UOp]:
  """What `graph_rewrite` makes, bottom-up, of a graph with values in the place of nodes: at once, so that what is only
  substituted is never built. One graph for each of `changes`, which have the same keys.

  `inside` says which nodes have a key of `changes` below them, or are one; the walk goes no further. `change` is asked
  about each node that has got new sources, other than sums of `index`. Observers see the rules on the substituted
  graphs, which they can replay.
  """
  steps, outside = _steps(root, changes[0], inside)

  def substituted(values: Mapping[UOp, UOp], finish: Callable[[UOp], UOp]) -> UOp:
    done = {node: finish(value) for node, value in values.items()}
    for node in outside:
      done[node] = finish(node)
    for node, parts in steps:
      new = [done[s] for s in parts]
      done[node] = _total(node, new, finish) if _is_sum(node) else finish(change(node.with_src(tuple(new))))
    return done[root]

  def rewritten(values: Mapping[UOp, UOp]) -> UOp:
    if active():
      return graph_rewrite(substituted(values, lambda node: node), table, bottom_up=True, name=name, history=history)
    return _watched(
      root, table, name, lambda table: substituted(values, _Rewriter(table, None, None, name, history).over_finished)
    )

  return [rewritten(values) for values in changes]


def _steps(
  root: UOp, keys: Collection[UOp], inside: Callable[[UOp], bool]
) -> tuple[list[tuple[UOp, Sequence[UOp]]], list[UOp]]:
  """(the nodes above `keys` with what each is made of, in order; the others that these are made of)."""
  steps: list[tuple[UOp, Sequence[UOp]]] = []
  outside: list[UOp] = []
  seen = set(keys)
  stack: list[Any] = [root]
  while stack:
    node = stack.pop()
    if node is None:  # what the node below this mark is made of is there
      steps.append(stack.pop())
    elif node not in seen:
      seen.add(node)
      if inside(node):
        parts = _summands(node, lambda u: u not in keys and inside(u)) if _is_sum(node) else node.src
        stack += ((node, parts), None)
        stack += [s for s in reversed(parts) if s not in seen]
      else:
        outside.append(node)
  return steps, outside


def _is_sum(node: UOp) -> bool:
  return node.op is Ops.ADD and node.dtype is dtypes.index


def _summands(total: UOp, changes: Callable[[UOp], bool]) -> Sequence[UOp]:
  """The operands of a left-nested sum, and of its partial sums as long as these change, too; of one that ends with a
  number the two operands, because there are others that differ in the number alone."""
  if total.src[1].op is Ops.CONST:
    return total.src
  found = []
  while total.op is Ops.ADD and changes(total):
    total, last = total.src
    found.append(last)
  return [total, *reversed(found)]


def _total(like: UOp, summands: Sequence[UOp], finish: Callable[[UOp], UOp]) -> UOp:
  """The sum of some offsets. The numbers among them come last, as they do in the end: no sum is built that has one in
  its middle."""
  constant, total = 0, None
  for s in summands:
    if s.op is Ops.ADD and s.src[1].op is Ops.CONST:
      s, number = s.src
      constant += number.arg
    if s.op is Ops.CONST:
      constant += s.arg
    else:
      total = s if total is None else finish(total.alu(Ops.ADD, s))
  if total is None:
    return finish(like.const(like.dtype, constant))
  return finish(total.alu(Ops.ADD, like.const(like.dtype, constant))) if constant else total


def _watched(root: UOp, table: PatternMatcher, name: str, run: Callable[[PatternMatcher], UOp]) -> UOp:
  """`run` with a table, under the eyes of observers and of the spec."""
  if active():
    with span("table", name or "rewrite", root) as work:
      result = work.gives(run(observed(table, name or "rewrite")))
  else:
    result = run(table)
  return result.checked(name) if SPEC.value >= 2 else result
