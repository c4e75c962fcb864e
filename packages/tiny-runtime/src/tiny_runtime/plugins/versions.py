"""Which code a compiled kernel came from: the versions of a plugin's distribution and of everything it depends on."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache

from tiny_runtime.plugins.installed import Distribution, by_name, headers, installed, normal
from tiny_uop.system import sha256

OWN = ("tiny-runtime", "tiny-uop")


@cache
def fingerprint(plugin: str = "") -> str:
  """`name==version` of tiny-runtime, of a plugin (`"tiny-runtime-cpu 0.1.0"`) and of their installed dependencies,
  sorted, one per line.

  For a package that is imported from elsewhere than where it was installed (in editable mode, or a tree of sources in
  PYTHONPATH) a hash of its files' sizes and times is added: its code changes without its version.
  """
  packages = by_name(installed())
  found: dict[str, str] = {}
  todo = [*OWN, plugin.partition(" ")[0]] if plugin else [*OWN]
  while todo:
    name = normal(todo.pop())
    if name in found:
      continue
    if (package := packages.get(name)) is None:
      found[name] = "not installed" + edited(name, None)
      continue
    _, version, requires = headers(package)
    found[name] = version + edited(name, package)
    # a requirement with an `extra` marker is not one of the package as installed
    todo += [required[0] for line in requires if "extra ==" not in line and (required := re.match(r"[\w.-]+", line))]
  return "\n".join(f"{name}=={version}" for name, version in sorted(found.items()))


def edited(name: str, package: Distribution | None) -> str:
  """State of the sources of a package that is imported from elsewhere than where it was installed; else empty."""
  module = name.replace("-", "_")
  places = (os.path.join(entry, module) for entry in sys.path)
  imported = next((place for place in places if os.path.isfile(os.path.join(place, "__init__.py"))), None)
  if imported is not None:
    installed_in = str(package.locate_file(module)) if package else ""
    return "" if os.path.abspath(imported) == os.path.abspath(installed_in) else state(imported)
  # a finder of somebody else's leads to the sources, or the module has another name than its distribution
  origin = json.loads((package and package.read_text("direct_url.json")) or "{}")
  if not origin.get("dir_info", {}).get("editable"):
    return ""
  from urllib.parse import unquote, urlparse  # late: who develops these packages can wait

  return state(os.path.join(unquote(urlparse(origin["url"]).path), "src"))


def state(folder: str) -> str:
  """A hash of the names, sizes and times of all files in a folder, but for bytecode."""
  files = sha256()
  for place, folders, names in os.walk(folder):
    folders[:] = sorted(name for name in folders if name != "__pycache__")
    for path in (os.path.join(place, name) for name in sorted(names)):
      found = os.stat(path)
      files.update(f"{path} {found.st_size} {found.st_mtime_ns}\n".encode())
  return "+" + files.hexdigest()[:16]
