"""Every lock is one of `tiny_uop.locks`, whose head has the rule."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[3] / "packages"
LOCKS = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Event", "Queue", "SimpleQueue"}
ELSEWHERE = {
  "tiny-dist/src/tiny_dist/groups/mpi.py": "a thread that moves on what is under way; MPI's processes do not fork",
  "tiny-uop/src/tiny_uop/locks.py": "what it is made of",
  "tiny-llm/src/tiny_llm/server/answers.py": "coroutines wait for each other: asyncio's queues, of one thread",
  "tiny-llm/src/tiny_llm/server/replies.py": "coroutines wait for each other: asyncio's queues, of one thread",
  "tiny-llm/src/tiny_llm/server/worker.py": "the thread that computes waits for those that ask",
  "tiny-llm/src/tiny_llm/session.py": "the thread of a progress line waits for the end of loading",
  "tiny-llm/src/tiny_llm/text/template.py": "a timer and what it is to end, for one template",
  "tiny-viz/src/tiny_viz/answers.py": "its Event is an entry of a timeline",
  "tiny-tensor/src/tiny_tensor/nn/loader.py": "a loader's thread and its loop wait for each other",
}


def locks_in(path: Path) -> Iterator[int]:
  text = path.read_text("utf-8")
  if not any(name in text for name in LOCKS):
    return
  for node in ast.walk(ast.parse(text)):
    name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
      name = node.func.id
    if name in LOCKS:
      yield node.lineno  # type: ignore[attr-defined]


def test_what_is_excepted_is_there() -> None:
  assert not [name for name in ELSEWHERE if not (PACKAGES / name).exists()]


@pytest.mark.parametrize("package", sorted(p.name for p in PACKAGES.iterdir() if (p / "src").is_dir()))
def test_every_lock_is_shared(package: str) -> None:
  files = (PACKAGES / package / "src").rglob("*.py")
  found = [(str(f.relative_to(PACKAGES)), f) for f in files if "conformance" not in f.parts]
  wrong = [f"{name}:{line}" for name, f in found if name not in ELSEWHERE for line in locks_in(f)]
  assert not wrong, "use tiny_uop.locks.shared_lock: its thread may come back to it, and a process may be forked"
