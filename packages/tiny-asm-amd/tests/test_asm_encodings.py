"""Every line of LLVM's assembler tests for these chips: text → bytes, and bytes → text → bytes."""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tiny_asm_amd import AsmError, assemble, decode, parse

ENCODINGS = Path(__file__).parent / "encodings"
CHIPS = {
  "GFX11": "gfx1100", "GFX1150": "gfx1150", "GFX12": "gfx1200", "GFX9": "gfx900", "GFX908": "gfx908",
  "GFX90A": "gfx90a", "GFX940": "gfx942",
}  # fmt: skip
WAVES = {"gfx11": "gfx1100", "gfx12": "gfx1200", "gfx940": "gfx942"}
OTHERS = {"GFX10", "VI", "SICI", "GCN"}
"""Chips that there are no tables of."""
LINES = {"gfx11": 23430, "gfx12": 21707, "gfx940": 4152}


@cache
def lines(name: str) -> list[tuple[str, str, bytes]]:
  """(chip, text, bytes) of each line: without images of GCN 5, of which LLVM's records for CDNA have none, and lines
  whose labels are elsewhere."""
  found = []
  for line in lzma.decompress((ENCODINGS / f"{name}.tsv.xz").read_bytes()).decode().splitlines():
    file, tag, text, code = line.split("\t")
    if not file.startswith("#") and tag not in OTHERS and file != "mimg" and " loop_" not in text:
      found.append((CHIPS.get(tag, WAVES[name]), text, bytes.fromhex(code)))
  return found


def failures(name: str, back: bool) -> Iterator[str]:
  """What is not as it should be."""
  for chip, text, code in lines(name):
    try:
      if back:
        made = decode(code, chip)
        shown = str(made)
        if (again := bytes(parse(shown, chip))) != code or made.size != len(code):
          yield f"{chip} {code.hex()} {text}: shown as {shown}, which is {again.hex()}"
      elif (got := bytes(parse(text, chip))) != code:
        yield f"{chip} {text}: {got.hex()}, expected {code.hex()}"
    except AsmError as error:
      yield f"{chip} {text} {code.hex()}: {error}"


@pytest.mark.parametrize("back", [False, True], ids=["text to bytes", "bytes to text to bytes"])
@pytest.mark.parametrize("name", LINES)
def test_every_line(name: str, back: bool) -> None:
  assert len(lines(name)) == LINES[name]
  found = list(failures(name, back))
  assert not found, f"{len(found)} of {LINES[name]} lines:\n" + "\n".join(found[:20])


SCALARS = re.compile(r"\b(?:vcc|exec)(?:_lo|_hi)?\b|\b(?:s|ttmp)(?:\d+|\[\d+:\d+\])")


@pytest.mark.parametrize("name", ["gfx11", "gfx12"])
def test_masks_are_shown_as_the_wave_has_them(name: str) -> None:
  """Of lines for one size of waves, LLVM's registers of the wave are those of ours."""
  count, wrong = 0, []
  for line in lzma.decompress((ENCODINGS / f"{name}.tsv.xz").read_bytes()).decode().splitlines():
    _, tag, text, code = line.split("\t")
    if tag in ("W32", "W64"):
      made = decode(bytes.fromhex(code), WAVES[name], lanes=int(tag[1:]))
      count += 1
      if SCALARS.findall(str(made)) != SCALARS.findall(text) or bytes(parse(str(made), WAVES[name])).hex() != code:
        wrong.append(f"{text}: {made}")
  assert count == {"gfx11": 6455, "gfx12": 5487}[name] and not wrong, "\n".join(wrong[:20])


OF_LLVM_22 = [line.split("\t") for line in (ENCODINGS / "gfx950.tsv").read_text().splitlines()]
"""Of gfx950, which the records of LLVM 19 have nothing of: as LLVM 22 compiles them, or its llvm-mc assembles them."""


@pytest.mark.parametrize("text,code_of", OF_LLVM_22)
def test_what_gfx950_has_more(text: str, code_of: str) -> None:
  code = bytes.fromhex(code_of)
  assert assemble(text, "gfx950") == code and assemble(str(decode(code, "gfx950")), "gfx950") == code
  with pytest.raises(AsmError):
    decode(code, "gfx942")


def test_registers_as_many_as_a_format_needs() -> None:
  with pytest.raises(AsmError, match="6 registers are wanted for numbers of this format"):
    assemble("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[20:23] blgp:2", "gfx950")


def test_branches_and_labels() -> None:
  text = "start: s_nop 0 ; nothing\n  s_call_b64 s[10:11], end\n  s_branch start // back\nend:\n s_cbranch_scc0 0x10"
  assert assemble(text, "gfx942").hex() == "000080bf" + "01008aba" + "fdff82bf" + "100084bf"
  with pytest.raises(AsmError, match="label start is there twice"):
    assemble("start:\nstart:\n", "gfx942")
