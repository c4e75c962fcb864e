"""The registry of device names: which package owns a name, and which devices may be the default.

It is the only place in shared code that names plugins. A plugin works without a row here: a row makes its device one
that programs get without asking, makes errors say what to install, and keeps others from taking its name. To add one,
propose it to tiny-runtime (`docs/plugin.md`, "A name of its own").

This is a table in tiny-runtime, not a claim of plugins, for two reasons: a plugin that is not installed cannot say what
to install, and one that could raise its own priority would take over programs that never asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping

OWNERS: Mapping[str, str] = {
  "AMD": "tiny-runtime-amd",
  "CUDA": "tiny-runtime-nv",
  "NV": "tiny-runtime-nv",
  "METAL": "tiny-runtime-metal",
  "CPU": "tiny-runtime-cpu",
  "REF": "tiny-runtime",
}
"""Device name → the package that owns it. Errors suggest the package; if several installed packages claim the name, the
owner's plugin is used."""

DEFAULT_ORDER = ("AMD", "CUDA", "METAL", "CPU")
"""Where DEVICE is not set, the default is the first of these that is usable. Other devices are used when named."""

FALLBACK = DEFAULT_ORDER[-1]
"""The device that every machine has: its package is suggested where no device is usable."""
