"""The site of this repository, and the examples in its documents.

docs.py build                 put the site together and build it into out/docs/site; broken links are errors
docs.py serve [--port 8000]   the same at http://localhost:8000, again and again while files change
docs.py assemble              only put it together, into out/docs: Markdown and mkdocs.yml
docs.py run PAGE …            run the examples of these Markdown files; --update writes what they print into them
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from documents import examples
from documents.repository import DOCS, PACKAGES, ROOT, documents
from documents.site import assemble

sys.path += [str(folder / "src") for folder in PACKAGES]  # nothing of ours is installed where the site is built

FOLDER = ROOT / "out" / "docs"
GENERATOR = [sys.executable, "-m", "zensical"]


def build(repository: str) -> int:
  """Exit status of the generator."""
  assemble(FOLDER, repository)
  return subprocess.run([*GENERATOR, "build", "--strict", "--clean", "-f", str(FOLDER / "mkdocs.yml")]).returncode


def serve(port: int, repository: str) -> int:
  """Until it is interrupted. What it serves is put together anew when a document changes."""
  assemble(FOLDER, repository)
  command = [*GENERATOR, "serve", "-a", f"localhost:{port}", "-f", str(FOLDER / "mkdocs.yml")]
  signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the server ends with this process
  seen = newest()
  with subprocess.Popen(command) as server:
    try:
      while server.poll() is None:
        time.sleep(1)
        if newest() > seen:
          seen = newest()
          assemble(FOLDER, repository)
    except KeyboardInterrupt:
      pass
    finally:
      server.terminate()
  return 0


def newest() -> float:
  """When a document was changed last."""
  return max(path.stat().st_mtime for path in (*documents(), *(p for p in DOCS.rglob("*") if p.is_file())))


def run(paths: list[Path], update: bool) -> int:
  """The number of pages that are wrong."""
  wrong = 0
  for path in paths:
    try:
      with tempfile.TemporaryDirectory() as folder:
        (examples.update if update else examples.run)(path, Path(folder))
    except examples.Wrong as problem:
      wrong += 1
      print(problem, file=sys.stderr)
  return wrong


def main() -> int:
  """See the head of this file."""
  parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("command", choices=("build", "serve", "assemble", "run"))
  parser.add_argument("pages", nargs="*", type=Path)
  parser.add_argument("--port", type=int, default=8000)
  parser.add_argument("--update", action="store_true")
  parser.add_argument("--repository", default=os.environ.get("REPOSITORY_URL", ""), help="its address on the web")
  given = parser.parse_intermixed_args()
  match given.command:
    case "build":
      return build(given.repository)
    case "serve":
      return serve(given.port, given.repository)
    case "run":
      return run(given.pages, given.update)
  assemble(FOLDER, given.repository)
  return 0


if __name__ == "__main__":
  raise SystemExit(main())
