"""The table of packages, made of what each says of itself in its pyproject.toml."""

from __future__ import annotations

import re
import tomllib

from documents.repository import PACKAGES, PLUGINS


def package_table() -> str:
  """The packages, with what they say of themselves, and the folder of each as a link to its page."""
  lines = ["| package | what it is | needs |", "|---|---|---|"]
  for folder in (*PACKAGES, *PLUGINS):
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needs = [re.split(r"[^\w-]", requirement)[0] for requirement in project.get("dependencies", ())]
    lines.append(f"| [{folder.name}]({folder.name}.md) | {project['description']} | {', '.join(needs)} |")
  return "\n".join(lines)
