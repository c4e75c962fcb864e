"""Which code a compiled kernel came from: the versions of a plugin's distribution and of everything it depends on."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path

from tiny_runtime.installed import Distribution, by_name, headers, installed, normal

OWN = ("tiny-runtime", "tiny-uop")


@cache
def fingerprint(plugin: str = "") -> str:
  """`name==version` of tiny-runtime, of a plugin (`"tiny-runtime-cpu 0.1.0"`) and of their installed dependencies,
  sorted, one per line.

  For a package installed in editable mode a hash of its files' sizes and times is added: its code changes without its
  version.
  """
  packages = by_name(installed())
  found: dict[str, str] = {}
  todo = [*OWN, plugin.partition(" ")[0]] if plugin else [*OWN]
  while todo:
    name = normal(todo.pop())
    if name in found:
      continue
    if (package := packages.get(name)) is None:
      found[name] = "not installed"
      continue
    _, version, requires = headers(package)
    found[name] = version + edited(package)
    # a requirement with an `extra` marker is not one of the package as installed
    todo += [required[0] for line in requires if "extra ==" not in line and (required := re.match(r"[\w.-]+", line))]
  return "\n".join(f"{name}=={version}" for name, version in sorted(found.items()))


def edited(package: Distribution) -> str:
  """State of the sources of an editable install; empty for any other."""
  origin = json.loads(package.read_text("direct_url.json") or "{}")
  if not origin.get("dir_info", {}).get("editable"):
    return ""
  from urllib.parse import unquote, urlparse  # late: who develops these packages can wait

  state = hashlib.sha256()
  for path in sorted(Path(unquote(urlparse(origin["url"]).path), "src").rglob("*")):
    if path.suffix == ".pyc" or not path.is_file():
      continue
    stat = path.stat()
    state.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
  return "+" + state.hexdigest()[:16]
