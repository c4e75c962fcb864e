"""`python -m tiny_runtime`: the table of plugins, their state, and what to do about each that is not ready.
`python -m tiny_runtime new NAME` writes a plugin.

Every plugin is loaded and probed in a child process of its own, since a native crash or a hang cannot be caught in
this one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections import Counter

from tiny_runtime.contract import API
from tiny_runtime.devices import Device
from tiny_runtime.plugins import new
from tiny_runtime.plugins.discovery import plugins
from tiny_runtime.plugins.known import DEFAULT_ORDER, FALLBACK, OWNERS
from tiny_runtime.plugins.plugin import Plugin, State
from tiny_runtime.plugins.trial import try_all
from tiny_runtime.settings import TRIAL_SECONDS
from tiny_uop.context import DEVICE, NO_COLOR

STYLES = {
  State.READY: ("✓", "32"), State.UNAVAILABLE: ("–", "33"), State.BROKEN: ("✗", "31"), State.INCOMPATIBLE: ("✗", "31"),
  State.FOUND: ("?", "0"),
}  # fmt: skip
"""The mark of a row, and its colour on a terminal."""


def default_of(found: list[Plugin]) -> str:
  """Which device a program gets that names none, in words."""
  ready = [plugin.name for plugin in found if plugin.state is State.READY]
  if DEVICE.value:
    try:
      name = Device.canonicalize(DEVICE.value)
    except ValueError as error:
      return f"none; the setting DEVICE: {error}"
    usable_as_set = name.partition(":")[0] in ready or Device.storage(name) is not None
    return f"{name} (the setting DEVICE){'' if usable_as_set else ', which is not ready'}"
  usable = [name for name in DEFAULT_ORDER if name in ready]
  if usable:
    return usable[0]
  if ready:
    return f"none; set DEVICE to one of {', '.join(ready)}, or pip install {OWNERS[FALLBACK]}"
  return f"none; pip install {OWNERS[FALLBACK]}" if all(plugin.name != FALLBACK for plugin in found) else "none"


def short(archs: tuple[str, ...], width: int) -> str:
  """The archs in one column, those of several devices once. Some list every feature of a processor; the beginning says
  enough."""
  text = ", ".join(f"{n} × {arch}" if n > 1 else arch for arch, n in Counter(archs).items()) or "–"
  room = max(12, width - 52)
  return text if len(text) <= room else text[: room - 1] + "…"


def render(found: list[Plugin], width: int, color: bool, verbose: bool) -> str:
  """The table as text: a row per plugin, and under each that is not ready why and what to do."""
  lines = []
  rows = [(plugin.name, plugin.state.value, short(plugin.archs, width), plugin.distribution) for plugin in found]
  head = ("device", "state", "arch", "package")
  widths = [max(len(row[n]) for row in [head, *rows]) for n in range(3)]

  def columns(row: tuple[str, str, str, str]) -> str:
    return "  ".join([*(cell.ljust(size) for cell, size in zip(row, widths)), row[3]])

  if rows:
    lines.append("  " + columns(head))
  for plugin, row in zip(found, rows):
    mark, hue = STYLES[plugin.state]
    text = f"{mark} {columns(row)}"
    lines.append(f"\x1b[{hue}m{text}\x1b[0m" if color else text)
    failed = plugin.state in (State.BROKEN, State.INCOMPATIBLE)
    why = f"{plugin.value}: {plugin.reason}" if failed else plugin.reason
    for label, note in (("why", why), ("do ", plugin.what_to_do)):
      if note:
        first, indent = f"      {label}  ", " " * 11
        lines.append(textwrap.fill(note, width, initial_indent=first, subsequent_indent=indent, break_long_words=False))
    if verbose and plugin.traceback:
      lines.append(textwrap.indent(plugin.traceback.rstrip(), "      | "))
  return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
  """Print the table. Status 0 if at least one device is ready. With `new NAME`: see new.py."""
  words = sys.argv[1:] if arguments is None else arguments
  if words[:1] == ["new"]:
    return new.main(words[1:])
  parser = argparse.ArgumentParser(
    prog="python -m tiny_runtime",
    description="Which devices can be used here.",
    epilog="`python -m tiny_runtime new NAME` writes a plugin package to begin a backend with.",
  )
  parser.add_argument("-v", "--verbose", action="store_true", help="also show the tracebacks of broken plugins")
  parser.add_argument("--timeout", type=float, default=TRIAL_SECONDS.default, help="seconds a probe may take")
  given = parser.parse_args(words)
  found = [listed for plugin in plugins().values() for listed in (plugin, *plugin.refused)]
  try_all(found, given.timeout)
  width = min(shutil.get_terminal_size().columns, 120)
  print(f"tiny-runtime, plugin contract {API[0]}.{API[1]}")
  print(textwrap.fill(f"default device: {default_of(found)}", width), end="\n\n")
  if found:
    print(render(found, width, sys.stdout.isatty() and not NO_COLOR, given.verbose))
  else:
    print(f"No plugin is installed. For any machine: pip install {OWNERS[FALLBACK]}")
  if not given.verbose and any(plugin.traceback for plugin in found):
    print("\nTracebacks: python -m tiny_runtime -v")
  return 0 if any(plugin.state is State.READY for plugin in found) else 1


if __name__ == "__main__":
  sys.exit(main())
