"""Which files of a package may import which: rooms stand on floors, no arrow goes up, and no files import in a circle.

Imports inside of functions count. Those under `if TYPE_CHECKING:` do not: a program that runs imports nothing by them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[3] / "packages"

# package → its floors from the ground up. A name is a folder or a file of the package; what stands on one floor does
# not import from others of that floor, and may import from all floors below.
FLOORS: dict[str, tuple[tuple[str, ...], ...]] = {
  "tiny-codegen": (
    ("instructions", "errors", "cost_model"),
    ("target",),
    ("render.base", "kernel", "decompose", "processors"),
    ("render", "lower"),
    ("staging",),
    ("matrix",),
    ("tiling",),
    ("opt",),
    ("pipeline",),
    ("compile",),
    ("__init__", "__main__"),
  ),
  "tiny-uop": (
    ("system",),
    ("ops", "context", "locks", "records"),
    ("dtype", "graph", "lazy", "operators", "origins"),
    ("args", "truncate", "node"),
    ("evaluate", "kernel", "text.formula", "text.print"),
    ("bounds", "pattern"),
    ("observe",),
    ("rewrite",),
    ("symbolic",),
    ("shape",),
    ("sharding", "spec.rows"),
    ("spec.tensor_rows",),
    ("spec.tables",),
    ("spec.verify",),
    ("uop",),
    ("samples", "text", "proof", "updates"),
    ("spec",),
    ("passes", "testing", "text.golden"),
    ("text.command_line",),
    ("__init__", "__main__"),
  ),
  "tiny-runtime": (
    ("system", "errors"),
    ("binary", "settings", "counters", "units", "whole_files", "plugins.known", "plugins.installed"),
    ("contract", "handles", "private_files", "profiling", "plugins.versions"),
    ("storage", "generated", "ref", "hcq", "plugins.plugin"),
    ("opened", "plugins"),
    ("devices", "compile_cache"),
    ("buffer", "llvm"),
    ("execution",),
    ("__init__", "__main__"),
    ("conformance",),
  ),
  "tiny-tensor": (
    ("shapes", "naming", "capturing", "pytree", "variable", "live", "pytorch_names", "io.download"),
    ("origins",),
    ("base", "placement"),
    ("host", "host_constants", "strides"),
    ("autograd", "sequence"),
    ("realize", "custom_kernel", "special", "linalg"),
    ("methods", "interop"),
    ("tensor",),
    ("transforms", "io", "fft"),
    ("jit", "nn", "array_api"),
    ("func", "__init__"),
  ),
  "tiny-llm": (
    ("sampling", "system"),
    ("text",),
    ("files", "quantised"),
    ("architectures",),
    ("rope", "cache", "weights"),
    ("attention",),
    ("model",),
    ("generate", "bench"),
    ("schema", "session"),
    ("chat", "server"),
    ("command_line",),
    ("__init__", "__main__"),
  ),
}
# floor → floors below it that it does not see all the same, with those that it does
BARRED = {
  "tiny-codegen": {"render": {"lower", "opt", "tiling", "staging", "matrix"}, "opt": {"render"}},
  "tiny-tensor": {"interop": {"special", "linalg", "custom_kernel"}, "nn": {"transforms", "special", "linalg"}},
}


def source_of(package: str) -> Path:
  return PACKAGES / package / "src" / package.replace("-", "_")


@cache
def imports(package: str) -> dict[str, set[str]]:
  """For each module of a package, by its name within, the modules of the package that it imports."""
  source, name = source_of(package), package.replace("-", "_")
  modules = {".".join(path.relative_to(source).with_suffix("").parts): path for path in sorted(source.rglob("*.py"))}
  found = {}
  for module, path in modules.items():
    tree = ast.parse(path.read_text("utf-8"))
    named = {target for node in _run(tree) for target in _named(node, name)}
    # a name is a module, or stands in one; a folder's own module is its `__init__`
    homes = {_home(target, modules) for target in named}
    found[module] = {home for home in homes if home not in (None, module)}
  return {module: {m for m in targets if m is not None} for module, targets in found.items()}


def _run(tree: ast.AST) -> Iterator[ast.AST]:
  """The nodes that run: all but those that only type checkers read."""
  for node in ast.iter_child_nodes(tree):
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
      continue
    yield node
    yield from _run(node)


def _named(node: ast.AST, name: str) -> Iterator[str]:
  if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == name:
    yield from (f"{node.module}.{alias.name}".partition(".")[2] for alias in node.names)
  elif isinstance(node, ast.Import):
    yield from (a.name.partition(".")[2] for a in node.names if a.name.split(".")[0] == name)


def _home(target: str, modules: dict[str, Path]) -> str | None:
  """The module that `target`, a module or a name in one, is or stands in."""
  for known in (target, target.rpartition(".")[0]):
    for module in (known, f"{known}.__init__".lstrip(".")):
      if module in modules:
        return module
  return None


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
  """Groups of modules that import each other, directly or by way of others (Tarjan's components of more than one)."""
  index: dict[str, int] = {}
  low: dict[str, int] = {}
  stack: list[str] = []
  found: list[list[str]] = []

  def visit(module: str) -> None:
    index[module] = low[module] = len(index)
    stack.append(module)
    for target in sorted(graph.get(module, ())):
      if target not in index:
        visit(target)
        low[module] = min(low[module], low[target])
      elif target in stack:
        low[module] = min(low[module], index[target])
    if low[module] == index[module]:
      group = stack[stack.index(module) :]
      del stack[stack.index(module) :]
      if len(group) > 1:
        found.append(sorted(group))

  for module in sorted(graph):
    if module not in index:
      visit(module)
  return found


def floor_of(module: str, floors: tuple[tuple[str, ...], ...]) -> tuple[int, str]:
  """(number, room) of a module: the longest name that it is or lies in."""
  rooms = {room: number for number, names in enumerate(floors) for room in names}
  parts = module.split(".")
  for length in range(len(parts), 0, -1):
    if (room := ".".join(parts[:length])) in rooms:
      return rooms[room], room
  raise AssertionError(f"{module} stands in no room of the table of floors")


@pytest.mark.parametrize("package", FLOORS)
def test_no_arrow_goes_up(package: str) -> None:
  floors, barred = FLOORS[package], BARRED.get(package, {})
  wrong = []
  for module, targets in imports(package).items():
    number, room = floor_of(module, floors)
    for target in sorted(targets):
      below, other = floor_of(target, floors)
      if other != room and (below >= number or other in barred.get(room, ())):
        wrong.append(f"{module} (in {room}) imports {target} (in {other})")
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted(p.name for p in PACKAGES.iterdir() if (p / "src").is_dir()))
def test_no_files_import_in_a_circle(package: str) -> None:
  assert not (found := circles(imports(package))), "\n".join(" ↔ ".join(group) for group in found)


def test_circles_are_found() -> None:
  assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
  assert circles({"a": {"b"}, "b": set()}) == []


def test_late_imports_count_and_those_of_types_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  source = tmp_path / "tiny-example" / "src" / "tiny_example"
  (source / "room").mkdir(parents=True)
  (source / "room" / "__init__.py").write_text("")
  (source / "room" / "one.py").write_text("def f():\n  from tiny_example.two import g\n")
  (source / "two.py").write_text(
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n  from tiny_example.room.one import f\n"
  )
  monkeypatch.setattr(f"{__name__}.PACKAGES", tmp_path)
  found = imports("tiny-example")
  assert found["room.one"] == {"two"} and found["two"] == set()
