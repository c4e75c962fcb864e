"""Archs: text and back, and what the table of families decides."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tiny_runtime_metal import FAMILIES, Arch, MetalCompiler, MetalRenderer
from tiny_runtime_metal.objc import Runtime
from tiny_uop import dtypes


@pytest.mark.parametrize("arch", [*(Arch(name) for name in FAMILIES), Arch("apple7", (3, 0)), Arch("mac2", (2, 4))])
def test_arch_is_text_and_back(arch: Arch) -> None:
  assert Arch.parse(str(arch)) == arch


def test_newer_languages_make_no_difference() -> None:
  assert Arch.parse("apple9 metal3.2") == Arch("apple9") and str(Arch("apple9", (4, 0))) == "apple9"


@pytest.mark.parametrize("text", ["apple6", "", "apple9 metal", "m1"])
def test_unknown_families_are_named(text: str) -> None:
  with pytest.raises(ValueError, match=f"arch {text!r} of METAL is none of apple10, apple9"):
    Arch.parse(text)


def test_bfloat_needs_the_hardware_and_the_language() -> None:
  native = {str(a): dtypes.bfloat16 in MetalRenderer(a).target.native_dtypes
            for a in (Arch("apple7"), Arch("apple7", (3, 0)), Arch("mac2"))}  # fmt: skip
  assert native == {"apple7": True, "apple7 metal3.0": False, "mac2": False}


def test_graphics_are_loaded_before_gpus_are_listed() -> None:
  """Without CoreGraphics, Metal lists no GPU in a process that has no windows."""
  loaded: list[str] = []

  class Library:
    """One whose functions are all `strlen`, which nobody calls."""

    def __getattr__(self, name: str) -> Any:
      return ctypes.CDLL(None).strlen

  def load(path: str) -> Library:
    loaded.append(path.rsplit("/", 1)[1])
    return Library()

  Runtime(load)
  assert loaded == ["CoreGraphics", "libobjc.A.dylib", "Metal"]


def test_matrices_by_family() -> None:
  def names(arch: Arch) -> list[str]:
    return [str(core) for core in MetalRenderer(arch).target.tensor_cores]

  assert names(Arch("apple8", (3, 0))) == [
    "m8n8k8 float16 → float32", "m8n8k8 float32 → float32", "m8n8k8 float16 → float16"
  ]  # fmt: skip
  assert "m8n8k8 bfloat16 → float32" in names(Arch("apple8")) and names(Arch("mac2")) == []


def test_keys_name_the_arch() -> None:
  assert MetalCompiler(Arch("apple9")).key == "metal apple9" != MetalCompiler(Arch("apple7")).key
