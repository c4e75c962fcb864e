"""A whole graph as formulas for people to read: what is used once stands where it is used, the rest has names.

kernel row_sums
  p0: ptr<float32, 64, global>
  p1: ptr<float32, 16384, global>
  r0 < 64 (loop), r1 < 256 (reduce)
  t0 = p1[r0*256 + r1]
  for r0: p0[r0] = sum(t0*t0 for r1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tiny_uop.args import AxisType, KernelInfo
from tiny_uop.dtype import PtrDType
from tiny_uop.ops import Ops
from tiny_uop.text.formula import ATOM, Formula, formula
from tiny_uop.uop import UOp

_WIDTH = 100  # of a formula; the parts of a longer one get names
_LIMIT = 20_000  # what has no name of its own (an address) is cut off here
_LEAVES = frozenset({Ops.CONST, Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL, Ops.PARAM, Ops.ALLOC, Ops.DEVICE, Ops.BUFFER})
_DECLARED = frozenset({Ops.PARAM, Ops.ALLOC, Ops.BUFFER, Ops.VARIABLE})
_IN_PLACE = frozenset({Ops.INDEX, Ops.AFTER, Ops.BIND})  # as short as their names


def readable(root: UOp) -> str:
  """The graph in lines, for people."""
  return "\n".join(_lines(root)) + "\n"


def _lines(root: UOp) -> Iterator[str]:
  if root.op is Ops.PROGRAM and len(root.src) >= 3:
    yield from _lines(root.src[0])
    yield from _lines(root.src[1])
    yield from str(root.src[2].arg).splitlines()
  elif root.op is Ops.LINEAR and any(s.op is Ops.CALL for s in root.src):
    yield from _schedule(root)
  else:
    yield _title(root)
    yield from (f"  {line}" for line in _Writer(root).lines())


def _title(root: UOp) -> str:
  info = root.arg if isinstance(root.arg, KernelInfo) else None
  name = f" {info.name}" if info is not None else ""
  opts = [f"{o.op.name}({o.axis}, {o.arg})" for o in (info.opts if info is not None else None) or ()]
  chosen = f" with {', '.join(opts)}" if opts else ""
  return f"{'program' if root.op is Ops.LINEAR else 'kernel' if name else 'graph'}{name}{chosen}"


def _schedule(root: UOp) -> Iterator[str]:
  bodies = list(dict.fromkeys(call.src[0] for call in root.src if call.src))
  for number, body in enumerate(bodies):
    yield f"# {number}"
    yield from _lines(body)
  yield "schedule"
  writer = _Writer(root)
  yield from (f"  {line}" for line in writer.declarations({u for c in root.src for a in c.src[1:] for u in a.toposort}))
  for call in root.src:
    arguments = ", ".join(writer.text(a)[1] for a in call.src[1:])
    name = getattr(call.src[0].arg, "name", call.src[0].op.name.lower()) if call.src else "?"
    yield f"  {bodies.index(call.src[0]) if call.src else '?'}: {name}({arguments})"


class _Writer:
  """The names and the texts of the nodes of one graph."""

  def __init__(self, root: UOp) -> None:
    self.root, self.nodes = root, root.toposort
    self.texts: dict[UOp, Formula] = {}
    self.uses = Counter(s for node in self.nodes if node.op is not Ops.LINEAR for s in node.src)
    self.named_so_far = 0

  def lines(self) -> Iterator[str]:
    yield from self.declarations(set(self.nodes))
    if self.root.op is Ops.LINEAR:
      yield from self.program()
      return
    for node in self.nodes:
      if (line := self.named(node)) is not None:
        yield line
    roots = self.root.src if self.root.op is Ops.SINK else (self.root,)
    yield from (self.text(s)[1] for s in roots)

  def named(self, node: UOp, in_order: bool = False) -> str | None:
    """The line that gives a node a name, where it needs one. `in_order`: loads happen where they stand."""
    level, text = self.text(node)
    if node is self.root or node.op in _LEAVES or node.op in _IN_PLACE:
      return None
    if self.uses[node] < 2 and len(text) <= _WIDTH and not (in_order and node.op is Ops.LOAD):
      return None
    name = f"t{self.named_so_far}"
    self.named_so_far += 1
    self.texts[node] = (ATOM, name)
    return f"{name} = {text}{_comment(node)}"

  def text(self, node: UOp) -> Formula:
    """A node as a formula over named and short ones."""
    for u in node.walk(lambda u: u not in self.texts):
      if u not in self.texts:
        level, text = formula(u, [self.texts[s] for s in u.src])
        self.texts[u] = (level, text) if len(text) <= _LIMIT else (ATOM, "...")
    return self.texts[node]

  def declarations(self, nodes: set[UOp]) -> Iterator[str]:
    """Memory and variables, a line each; the loops in one line."""
    loops = []
    for node in self.nodes:
      if node not in nodes:
        continue
      if node.op is Ops.RANGE and node.src:
        kind = node.arg[1] if type(node.arg) is tuple and len(node.arg) == 2 else None
        what = f" ({kind.value})" if isinstance(kind, AxisType) else ""
        loops.append(f"{self.text(node)[1]} < {self.text(node.src[0])[1]}{what}")
      elif node.op in _DECLARED:
        yield f"{self.text(node)[1]}: {_kind(node)}"
    if loops:
      yield ", ".join(loops)

  def program(self) -> Iterator[str]:
    """The instructions of a LINEAR, loops indented."""
    depth = 0
    for node in self.root.src:
      if node.op in (Ops.END, Ops.ENDIF):
        depth = max(depth - 1, 0)
      elif node.op is Ops.RANGE:
        yield f"{'  ' * depth}for {self.text(node)[1]}:"
        depth += 1
      elif node.op is Ops.IF:
        yield f"{'  ' * depth}if {self.text(node.src[0])[1] if node.src else '?'}:"
        depth += 1
      elif node.op is Ops.STORE:
        yield f"{'  ' * depth}{self.text(node)[1]}"
      elif (line := self.named(node, in_order=True)) is not None:
        yield f"{'  ' * depth}{line}"


def _kind(node: UOp) -> str:
  if node.op is Ops.VARIABLE and type(node.arg) is tuple and len(node.arg) == 3:
    return f"{node.dtype} from {node.arg[1]} to {node.arg[2]}"
  if node.op is Ops.BUFFER and type(node.arg) is tuple and len(node.arg) == 2:
    return f"{node.dtype}[{node.arg[1]}]{f' on {node.src[0].arg}' if node.src else ''}"
  return str(node.dtype)


def _comment(node: UOp) -> str:
  if isinstance(node.dtype, PtrDType):
    return ""
  try:
    shape = ", ".join(s.render() if isinstance(s, UOp) else str(s) for s in node.shape)
  except Exception:  # effects have no shape, and a malformed node may fail in any way
    return ""
  return f"  # {node.dtype}[{shape}]" if shape else ""
