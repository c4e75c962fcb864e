"""What a plugin says in advance about its results: two lists of case patterns with reasons, in a TOML file."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

FILE_NAME = "conformance.toml"


@dataclass
class Expectations:
  """`unsupported` cases are skipped; `expected_failures` are run and must fail. Keys are patterns with `*` and `?` over
  case names such as `test_level2_ops.py::test_op[ADD-float16]`; values are reasons."""

  unsupported: dict[str, str] = field(default_factory=dict)
  expected_failures: dict[str, str] = field(default_factory=dict)
  used: set[str] = field(default_factory=set)

  @classmethod
  def read(cls, path: Path) -> Expectations:
    """Read a file. Raises ValueError, naming the file, if it is not of the right form."""
    try:
      data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
      raise ValueError(f"{path}: {error}") from error
    if unknown := data.keys() - {"unsupported", "expected_failures"}:
      raise ValueError(f"{path}: unknown table {', '.join(sorted(unknown))}; expected unsupported, expected_failures")
    for table in data.values():
      for pattern, reason in table.items():
        if not isinstance(reason, str) or not reason.strip():
          raise ValueError(f"{path}: {pattern!r} needs a reason, got {reason!r}")
    return cls(data.get("unsupported", {}), data.get("expected_failures", {}))

  @classmethod
  def of_module(cls, name: str) -> Expectations:
    """Those in `conformance.toml` next to the plugin's module; none if it has no such file."""
    spec = importlib.util.find_spec(name.partition(":")[0])
    if spec is None or spec.origin is None:
      return cls()
    path = Path(spec.origin).with_name(FILE_NAME)
    return cls.read(path) if path.is_file() else cls()

  def reason_unsupported(self, case: str) -> str | None:
    """Why a case cannot be run, if it is listed."""
    return self._match(self.unsupported, case)

  def reason_failing(self, case: str) -> str | None:
    """Why a case is known to fail, if it is listed."""
    return self._match(self.expected_failures, case)

  def stale(self) -> list[str]:
    """Patterns that matched no case."""
    return sorted((self.unsupported.keys() | self.expected_failures.keys()) - self.used)

  def _match(self, table: dict[str, str], case: str) -> str | None:
    for pattern, reason in table.items():
      if matches(pattern, case):
        self.used.add(pattern)
        return reason
    return None


def matches(pattern: str, case: str) -> bool:
  """Whether a pattern covers a case. `[` stands for itself, unlike in a shell."""
  return fnmatchcase(case, pattern.replace("[", "[[]"))
