"""The pages of the API reference: which modules are public, and how their names are shown. The docstrings are read from
the sources, by mkdocstrings, when the site is built."""

from __future__ import annotations

from documents.repository import PACKAGES

SUBMODULES: dict[str, tuple[str, ...]] = {
  "tiny_uop": ("observe", "testing", "golden", "readable", "spec"),
  "tiny_codegen": ("render",),
  "tiny_runtime": ("contract", "ref"),
  "tiny_tensor": ("nn", "nn.optim", "nn.schedule", "nn.state"),
}
"""Public modules beside the packages themselves."""


def modules() -> list[str]:
  """All public modules, package by package."""
  names = [folder.name.replace("-", "_") for folder in PACKAGES]
  return [module for name in names for module in (name, *(f"{name}.{sub}" for sub in SUBMODULES.get(name, ())))]


def pages() -> dict[str, str]:
  """Place in the site → text of a page for mkdocstrings."""
  return {f"reference/{module}.md": f"# `{module}`\n\n::: {module}\n" for module in modules()}
