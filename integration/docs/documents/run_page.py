"""Runs the examples of one page, in a process of its own: `python run_page.py EXAMPLES.json RESULTS.json`.

In: a list of [language, code, a command for bash that comes first or ""]. Out: a list of [what it printed, the
error or ""], as far as the process came. Python blocks share their names, as for a reader who types one after the
other; shell blocks share the folder, which is that of this process.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import traceback
import types
from pathlib import Path

SHELL = ["bash", "-eu", "-c"]


def run_python(code: str, module: types.ModuleType) -> tuple[str, str]:
  """Run a block in the page's module. (what it printed, the error as the last lines of a traceback have it or "")."""
  if "\ndef test_" in code:
    return run_tests(code)
  printed, error = io.StringIO(), ""
  with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
    try:
      exec(compile(code, "example.py", "exec"), module.__dict__)
    except Exception as raised:
      error = "".join(traceback.format_exception_only(raised))
  return printed.getvalue(), error


def run_tests(code: str) -> tuple[str, str]:
  """A block with functions `test_…` is a file for pytest."""
  Path("test_of_the_page.py").write_text(code, encoding="utf-8")
  command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_of_the_page.py"]
  done = subprocess.run(command, capture_output=True, text=True)
  return "", "" if done.returncode == 0 else done.stdout + done.stderr


def run_shell(code: str) -> tuple[str, str]:
  """Run a block with bash, which stops at the first command that fails."""
  done = subprocess.run([*SHELL, code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
  return done.stdout, "" if done.returncode == 0 else f"exit status {done.returncode}\n"


def main(examples: Path, results: Path) -> None:
  """Run all of them; see the head of this file."""
  sys.path[0] = ""  # not the folder of this file: the reader's
  module = types.ModuleType("__main__")
  sys.modules["__main__"] = module  # what the page defines can be pickled, and dataclasses find their module
  given: list[list[str]] = json.loads(examples.read_text(encoding="utf-8"))
  done: list[tuple[str, str]] = []
  for language, code, first in given:
    printed, error = run_shell(first) if first else ("", "")
    if not error:
      printed, error = run_shell(code) if language == "sh" else run_python(code, module)
    done.append((printed, error))
    results.write_text(json.dumps(done), encoding="utf-8")


if __name__ == "__main__":
  main(Path(sys.argv[1]), Path(sys.argv[2]))
