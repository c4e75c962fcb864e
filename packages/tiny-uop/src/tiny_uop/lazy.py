"""Public names of a package that are imported when somebody asks for them, so that the others cost no time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tiny_uop.locks import undivided


def lazy_names(
  package: str, instead: Callable[[str], str | None] = lambda name: None, /, **modules: str
) -> Callable[[str], Any]:
  """The `__getattr__` of a package's `__init__.py` (PEP 562): `name="module"` is `from package.module import name`, and
  `name=""` the module `package.name` itself. In another module, `name="..room.module"` is what that module would write
  as `from ..room.module import name`. It is asked for each name once. `instead` may say what to write for a name that
  is not there.

  Type checkers want the same imports under `if TYPE_CHECKING:`. Raises ValueError for a name that is its module's: to
  import the module anywhere would put it in the place of what is named so in it.
  """
  if hidden := [name for name, module in modules.items() if name == module]:
    raise ValueError(f"{package}.{hidden[0]} is a module, it cannot be what is named {hidden[0]!r} in it: rename one")

  def __getattr__(name: str) -> Any:
    if name not in modules:
      advice = None if name.startswith("_") else instead(name)
      raise AttributeError(f"module {package!r} has no attribute {name!r}" + (f". Here: {advice}" if advice else ""))
    with undivided:
      module = import_module(f".{modules[name] or name}", package)
    found = getattr(module, name) if modules[name] else module
    setattr(sys.modules[package], name, found)
    return found

  return __getattr__
