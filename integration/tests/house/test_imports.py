"""What each package imports, against the table of what it may: the one of the design."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[3] / "packages"

# package → other packages that it may import; the standard library always
ALLOWED: dict[str, set[str]] = {
  "tiny-uop": set(),
  "tiny-sched": {"tiny_uop"},
  "tiny-codegen": {"tiny_uop"},
  "tiny-runtime": {"tiny_uop", "tqdm"},
  "tiny-runtime-cpu": {"tiny_uop", "tiny_runtime", "tiny_codegen", "llvmlite"},
  "tiny-runtime-amd": {"tiny_uop", "tiny_runtime", "tiny_codegen", "llvmlite"},
  "tiny-runtime-metal": {"tiny_uop", "tiny_runtime", "tiny_codegen"},
  "tiny-runtime-nv": {"tiny_uop", "tiny_runtime", "tiny_codegen", "llvmlite"},
  "tiny-tensor": {"tiny_uop", "tiny_sched", "tiny_runtime"},
  "tiny-llm": {"tiny_uop", "tiny_tensor", "jinja2", "numpy", "tokenizers"},
  "tiny-dist": {"tiny_uop", "tiny_sched", "tiny_runtime", "tiny_tensor"},
  "tiny-viz": {"tiny_uop"},
  "tiny-asm-amd": set(),
  "tiny-onnx": {"tiny_uop", "tiny_runtime", "tiny_tensor", "onnx", "numpy", "ml_dtypes"},
}
# package → what it may import in one part of it only, because an extra of the package brings it: {name: (part, extra)}
ALLOWED_IN: dict[str, dict[str, tuple[str, str]]] = {
  "tiny-uop": {"z3": ("proof", "proof")},
  "tiny-runtime": {"pytest": ("conformance", "conformance"), "llvmlite": ("llvm", "llvm")},
  "tiny-tensor": {"numpy": ("", "numpy")},
  "tiny-onnx": {"PIL": ("pictures.py", "image")},
  "tiny-llm": {
    "llama_cpp": ("bench.py", "bench"),
    "llguidance": ("schema.py", "json"),
    "starlette": ("server", "server"),
    "uvicorn": ("server", "server"),
  },
  "tiny-asm-amd": {"numpy": ("traces", "traces")},
  "tiny-viz": {"tiny_asm_amd": ("hardware.py", "amd")},
  "tiny-dist": {"mpi4py": ("groups", "mpi")},
}

# what of the standard library Windows lacks, as far as anyone here would be tempted to use it
LACKING = {
  "os": "fork getpgid killpg nice pread pwrite register_at_fork sched_getaffinity sched_setaffinity sysconf waitid",
  "mmap": "MADV_FREE MADV_HUGEPAGE MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_READ PROT_WRITE",
  "signal": "SIGALRM SIGHUP SIGKILL SIGPIPE SIGSTOP SIGUSR1 SIGUSR2 pthread_kill setitimer",
}


def module_of(package: str) -> str:
  return package.replace("-", "_")


@cache
def imports_of(path: Path) -> list[tuple[str, int, bool]]:
  """(top-level name, line, whether it happens at import) for each import of a file, dynamic ones included."""
  return list(_imports(ast.parse(path.read_text("utf-8"), str(path)), True))


def _imports(tree: ast.AST, at_import: bool) -> Iterator[tuple[str, int, bool]]:
  """Those below a node, which itself is run when the file is imported or is not."""
  for node in ast.iter_child_nodes(tree):
    match node:
      case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
        yield from _imports(node, False)
      case ast.Import() | ast.ImportFrom() | ast.Call():
        yield from ((name.split(".")[0], node.lineno, at_import) for name in _imported(node))
        yield from _imports(node, at_import)
      case _:
        yield from _imports(node, at_import)


def _imported(node: ast.Import | ast.ImportFrom | ast.Call) -> list[str]:
  """What a statement imports, or a call of `import_module`."""
  match node:
    case ast.Import(names=aliases):
      return [alias.name for alias in aliases]
    case ast.ImportFrom(level=0, module=str(module)):
      return [module]
    case ast.Call(
      func=ast.Attribute(attr="import_module" | "__import__") | ast.Name(id="import_module" | "__import__"),
      args=[ast.Constant(value=str(name)), *_],
    ):
      return [name]
  return []


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_are_allowed(package: str) -> None:
  source = PACKAGES / package / "src" / module_of(package)
  files = sorted(source.rglob("*.py"))
  assert files, f"no sources in {source}"
  allowed = ALLOWED[package] | {module_of(package)} | set(sys.stdlib_module_names)
  wrong = []
  for path in files:
    part = path.relative_to(source).parts[0]
    for name, line, at_import in imports_of(path):
      if name == "_typeshed" and not at_import:
        continue  # type checkers bring it
      where, _extra = ALLOWED_IN.get(package, {}).get(name, (None, None))
      if name not in allowed and not (where == "" or where == part):
        wrong.append(f"{path.relative_to(PACKAGES)}:{line} imports {name}")
  assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", ALLOWED)
def test_declared_dependencies_are_the_table(package: str) -> None:
  project = tomllib.loads((PACKAGES / package / "pyproject.toml").read_text())["project"]
  declared = {
    d.split(">")[0].split("<")[0].split("=")[0].split("~")[0].strip() for d in project.get("dependencies", [])
  }
  # what a sibling already needs may be left to it, tiny-uop in particular
  allowed = {name.replace("_", "-") for name in ALLOWED[package]}
  assert declared <= allowed, f"{package} declares {sorted(declared - allowed)}, which the table does not allow"
  assert allowed - declared <= {"tiny-uop"}, (
    f"{package} may import {sorted(allowed - declared)} but does not declare it"
  )
  for dependency in project.get("dependencies", []):
    if dependency.startswith("tiny-"):
      assert ">=" in dependency and "<" in dependency, f"{package}: {dependency!r} is not a range of versions"
  for name, (_, extra) in ALLOWED_IN.get(package, {}).items():
    listed = project.get("optional-dependencies", {}).get(extra, [])
    assert any(d.lower().startswith(name.lower().replace("_", "-")) for d in listed), (
      f"{package} has no extra {extra!r} that brings {name}"
    )


def test_every_package_is_in_the_table() -> None:
  assert {p.parent.name for p in PACKAGES.glob("*/pyproject.toml")} == ALLOWED.keys()


def test_numpy_is_imported_only_when_needed() -> None:
  source = PACKAGES / "tiny-tensor" / "src"
  eager = [
    f"{path.name}:{line}"
    for path in source.rglob("*.py")
    for name, line, at_import in imports_of(path)
    if name == "numpy" and at_import
  ]
  assert not eager


def test_importing_the_frontend_loads_no_backend() -> None:
  code = """
import sys, tiny_tensor, tiny_sched
wrong = [m for m in sys.modules if m.split('.')[0] in ('tiny_codegen', 'tiny_runtime_cpu', 'llvmlite', 'numpy')]
assert not wrong, wrong
"""
  subprocess.run([sys.executable, "-c", code], check=True)


def test_the_scanner_sees_every_kind_of_import(tmp_path: Path) -> None:
  path = tmp_path / "sample.py"
  path.write_text(
    "import a.b\nfrom c.d import e\nfrom . import f\ndef g():\n  import h\n"
    "import importlib\nimportlib.import_module('i.j')\n__import__('k')\n"
  )
  found = {name: at_import for name, _, at_import in imports_of(path)}
  assert found == {"a": True, "c": True, "h": False, "importlib": True, "i": True, "k": True}


@pytest.mark.parametrize("package", ALLOWED)
def test_importing_needs_nothing_that_windows_lacks(package: str) -> None:
  """Every module but other systems' halves, in a process that says it is Windows, and whose `os`, `mmap` and `signal`
  have no more than those there."""
  source = PACKAGES / package / "src"
  extras = {f"{module_of(package)}/{part}" for part, _ in ALLOWED_IN.get(package, {}).values() if part}
  paths = [path.relative_to(source).as_posix() for path in sorted(source.rglob("*.py"))]
  others = [path for path in paths if 'assert sys.platform != "win32", ' in (source / path).read_text("utf-8")]
  ours = [path for path in paths if not path.startswith(tuple(extras)) and path not in others]
  modules = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in ours]
  code = f"""
import concurrent.futures, ctypes, importlib, logging, mmap, multiprocessing, os, random, signal, socket, sys
import asyncio, inspect, subprocess, tempfile, uuid, webbrowser, zipfile
for module, names in {LACKING!r}.items():
  for name in names.split():
    if hasattr(globals()[module], name):
      delattr(globals()[module], name)
sys.platform, signal.SIGBREAK = "win32", 21
for name in {modules!r}:
  importlib.import_module(name)
"""
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
