"""Finds what all threads of a process share: containers of modules that functions change, and names that they set.

`python integration/tests/house/shared_state.py` prints it, with the locks that each change has around it.
`test_shared_state.py` holds docs/threads.md against it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
CONTAINERS = set(
  "Counter OrderedDict WeakKeyDictionary WeakSet WeakValueDictionary bytearray defaultdict deque dict list set".split()
)
CHANGES = set(
  "add append appendleft clear discard extend insert move_to_end pop popitem popleft remove reverse setdefault sort "
  "update".split()
)
ONE_STEP = set("add append appendleft clear discard extend pop popleft remove setdefault".split())
"""Those that other threads see done or not begun, of containers written in C: also without the GIL (PEP 703)."""


@dataclass
class Shared:
  """A container, or a name, of a module."""

  changes: list[Change] = field(default_factory=list)

  @property
  def locks(self) -> set[str]:
    """Locks that all changes have."""
    return set.intersection(*[set(change.locks) for change in self.changes]) if self.changes else set()


@dataclass(frozen=True)
class Change:
  """Where it is changed, how, and inside of which `with`s."""

  place: str
  how: str
  locks: tuple[str, ...]

  @property
  def one_step(self) -> bool:
    return self.how in ONE_STEP or self.how in ("[] =", "del []", "=")


def found(packages: Path = ROOT / "packages") -> dict[str, Shared]:
  """By `tiny_uop.node._nodes`."""
  trees = {}
  for source in sorted(packages.glob("*/src")):
    for path in sorted(source.rglob("*.py")):
      name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
      if not any(part.startswith("test_") for part in name.split(".")):  # those of the kit
        trees[name] = ast.parse(path.read_text("utf-8"))
  containers = {f"{module}.{name}" for module, tree in trees.items() for name in _containers(tree)}
  shared: dict[str, Shared] = defaultdict(Shared)
  for module, tree in trees.items():
    known = {name: f"{module}.{name}" for name in _containers(tree)}
    for node in ast.walk(tree):
      if isinstance(node, ast.ImportFrom) and node.module is not None:
        known |= {alias.asname or alias.name: full for alias in node.names
                  if (full := f"{node.module}.{alias.name}") in containers}  # fmt: skip
    nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.Global, ast.Call, ast.Subscript, ast.AugAssign))]
    some = any(isinstance(node, ast.Global) for node in nodes)
    if not (some or any(name in known for node in nodes for name, _ in _changed_by(node, frozenset()))):
      continue  # quickly: in most modules nothing is
    for full, change in _changes(tree, module, known):
      shared[full].changes.append(change)
  return dict(sorted(shared.items()))


def _containers(tree: ast.Module) -> Iterator[str]:
  for node in tree.body:
    match node:
      case ast.Assign(targets=[ast.Name(id=name)], value=value):
        pass
      case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
        pass
      case _:
        continue
    match value:
      case ast.Dict() | ast.List() | ast.Set() | ast.DictComp() | ast.ListComp() | ast.SetComp():
        yield name
      case ast.Call(func=ast.Name(id=kind) | ast.Attribute(attr=kind)) if kind in CONTAINERS:
        yield name


def _changes(tree: ast.Module, module: str, known: dict[str, str]) -> Iterator[tuple[str, Change]]:
  """All that functions change. What a module does to its own tables when it is imported is done before others see
  it."""

  def walk(node: ast.AST, where: tuple[str, ...], locks: tuple[str, ...], own: frozenset[str],
           set_here: frozenset[str]) -> Iterator[tuple[str, Change]]:  # fmt: skip
    if isinstance(node, ast.FunctionDef) and any(ast.unparse(d) == "in_child" for d in node.decorator_list):
      return  # a forked child has one thread
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
      arguments = node.args
      names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
      inside = [n for n in ast.walk(node) if isinstance(n, ast.Global)]
      set_here = frozenset(name for n in inside for name in n.names)
      names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} - set_here
      own = own | names
      where = (*where, getattr(node, "name", "lambda"))
      locks = ()
    elif isinstance(node, ast.ClassDef):
      where = (*where, node.name)
    if isinstance(node, (ast.With, ast.AsyncWith)):
      locks = (*locks, *[ast.unparse(item.context_expr) for item in node.items])
    if where:
      place = f"{module}.{'.'.join(where)}"
      for name, how in _changed_by(node, set_here):
        full = f"{module}.{name}" if how in ("=", "+=") else known.get(name)
        if full is not None and (how in ("=", "+=") or name not in own):
          yield full, Change(place, how, locks)
    for child in ast.iter_child_nodes(node):
      yield from walk(child, where, locks, own, set_here)

  yield from walk(tree, (), (), frozenset(), frozenset())


def _changed_by(node: ast.AST, set_here: frozenset[str]) -> Iterator[tuple[str, str]]:
  """(name, how) of what a statement or call changes."""
  match node:
    case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=method)) if method in CHANGES:
      yield name, method
    case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
      yield name, "[] ="
    case ast.Subscript(value=ast.Name(id=name), ctx=ast.Del()):
      yield name, "del []"
    case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name))):
      yield name, "[] += …"
    case ast.AugAssign(target=ast.Name(id=name)) if name in set_here:
      yield name, "+="
    case ast.Name(id=name, ctx=ast.Store()) if name in set_here:
      yield name, "="


if __name__ == "__main__":
  for name, shared in found().items():
    print(name, "| locks:", ", ".join(sorted(shared.locks)) or "-")
    for change in shared.changes:
      print("   ", change.place, change.how, "" if not change.locks else f"with {', '.join(change.locks)}")
