"""Finds plugins by their metadata: entry-point group `tiny_runtime.backends.v1`, one entry per device name.

Reading metadata runs no plugin code. `plugin.py` imports a plugin when it is needed, and records how that fails.
`python -m tiny_runtime` prints what is found here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tiny_runtime.contract import API
from tiny_runtime.errors import Unavailable
from tiny_runtime.plugins.installed import Distribution, entries, headers, installed, normal
from tiny_runtime.plugins.known import OWNERS
from tiny_runtime.plugins.plugin import Plugin, State, is_users, other_version
from tiny_runtime.storage import BUILT_IN
from tiny_uop.locks import shared_lock

PREFIX = "tiny_runtime.backends.v"
NAME = re.compile(r"[A-Z][A-Z0-9_]*")

_lock = shared_lock()
_plugins: dict[str, Plugin] | None = None


def plugins() -> Mapping[str, Plugin]:
  """Every plugin installed, by device name, in a state no further than is known so far. Reads metadata on the first
  call."""
  global _plugins
  with _lock:
    if _plugins is None:
      found = scan(installed())
      _plugins = found if _plugins is None else _plugins  # a finaliser or signal handler may have needed it since
    return _plugins


def rescan() -> None:
  """Forget what was found, e.g. after installing a plugin or plugging in a device. Open devices stay open."""
  global _plugins
  with _lock:
    _plugins = None


def find(name: str) -> Plugin:
  """The plugin of device `name` (without index). Raises Unavailable, saying what is installed and what to install."""
  found = plugins().get(name)
  if found is not None:
    return found
  for other in plugins().values():
    if other.name.upper() == name:
      raise other.error()  # of which nobody could ask for, and why
  installed = ", ".join(sorted(plugins())) or "none"
  package = OWNERS.get(name)
  todo = (
    f"pip install {package}" if package else f"Install the package that provides {name}, or use one of those installed"
  )
  raise Unavailable(f"no installed package provides device {name!r}; installed: {installed}", todo)


def scan(found: Iterable[Distribution]) -> dict[str, Plugin]:
  """Plugins among these distributions, by device name. Runs none of their code."""
  ours: dict[str, list[Plugin]] = {}
  others: dict[str, list[Plugin]] = {}
  for distribution, group, name, value in entry_points(found):
    version = group.removeprefix(PREFIX)
    plugin = Plugin(name, distribution, value)
    if version == str(API[0]):
      check_name(plugin)
      ours.setdefault(name, []).append(plugin)
    else:
      newer = version.isdigit() and int(version) > API[0]
      plugin.fail(State.INCOMPATIBLE, *other_version(version, newer, plugin.package))
      others.setdefault(name, []).append(plugin)
  result = {name: one_of(claims) for name, claims in ours.items()}
  for name, claims in others.items():
    result.setdefault(name, claims[0])  # a package may serve several majors; ours, if there, is the one to use
  return dict(sorted(result.items()))


def entry_points(found: Iterable[Distribution]) -> Iterator[tuple[str, str, str, str]]:
  """(name and version of the distribution, group, name, value) of every backend entry point. A distribution found twice
  on the path counts once."""
  seen: set[str] = set()
  for distribution in found:
    try:
      text = distribution.read_text("entry_points.txt") or ""
      if PREFIX not in text:
        continue
      listed = [entry for entry in entries(text) if entry[0].startswith(PREFIX)]
      name, version, _ = headers(distribution)
    except Exception as error:
      if is_users(error):
        raise
      continue  # some other package's damaged metadata is no business of ours
    if normal(name) in seen:
      continue
    seen.add(normal(name))
    yield from ((f"{name} {version}", *entry) for entry in listed)


def check_name(plugin: Plugin) -> None:
  """Refuse names that a user could not type as `NAME:index`, and those of built-in storage."""
  if not NAME.fullmatch(plugin.name):
    plugin.broken(f"{plugin.name!r} is not a device name; expected capital letters, digits and _")
  elif plugin.name in BUILT_IN:
    plugin.broken(f"the name {plugin.name} is taken by tiny-runtime itself")


def one_of(claims: list[Plugin]) -> Plugin:
  """The one plugin that claims a name. If several do, it is the one of the owner (`known.OWNERS`); the others are
  `refused`. A name that belongs to nobody is given to none of them, and the error names them all."""
  plugin, *more = claims
  if not more:
    return plugin
  name = plugin.name
  owners = [claim for claim in claims if normal(claim.package) == OWNERS.get(name)]
  if not owners:
    who, what = (" and ".join(texts) for texts in zip(*((p.distribution, p.value) for p in claims)))
    plugin = Plugin(name, who, what)
    todo = ", or ".join(f"pip uninstall {p.package}" for p in claims)
    plugin.broken("several packages claim the name", f"Uninstall all but one of them: {todo}")
    return plugin
  for claim in claims:
    if claim is not owners[0]:
      reason = f"it claims the name {name}, which is that of {owners[0].package}, and is not used"
      claim.broken(reason, f"Uninstall it: pip uninstall {claim.package}")
      owners[0].refused.append(claim)
  return owners[0]
