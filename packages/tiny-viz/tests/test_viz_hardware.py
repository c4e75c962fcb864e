"""What a GPU recorded of a launch, as it stands in a trace, becomes counters, waves and instructions."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tiny_asm_amd import Kernel, code_object
from tiny_asm_amd.traces.layouts import layout
from tiny_asm_amd.traces.packets import Packet, encode
from tiny_viz import read_trace
from tiny_viz.__main__ import main
from tiny_viz.answers import Answers
from tiny_viz.hardware import Recordings

KINDS = layout("rdna3").by_name
SOURCE = ["s_load_b32 s4, s[0:1], null", "s_waitcnt lgkmcnt(0)", "v_mov_b32 v0, s4", "s_endpgm"]


def packet(name: str, **fields: int) -> Packet:
  return Packet(KINDS[name], KINDS[name].packed(**fields))


def text(data: bytes) -> str:
  return base64.b64encode(data).decode()


def recorded(path: Path, change: dict[str, Any] | None = None) -> Path:
  """A launch with two waves, one of which is traced, and with counters."""
  wave = [
    packet("INST", operation=1),
    packet("TS_OR_MARK", value=500),
    packet("IMMEDIATE"),
    packet("VALUINST", delta=3),
  ]
  trace = [packet("LAYOUT", layout=3), packet("WAVESTART"), packet("WAVESTART", simd=2), *wave,
           packet("WAVEEND", delta=7), packet("WAVEEND", simd=2, delta=1)]  # fmt: skip
  program = code_object([Kernel.of("gfx1100", "load", SOURCE, argument_bytes=8, threads=32)])
  block = b"".join(n.to_bytes(8, "little") for n in (3, 4, 5))
  lines: list[dict[str, Any]] = [
    {"profile": 1, "program": "made.py", "process": 1, "began": 0, "ended": 9},
    {"program": text(program), "code": 0, "chip": "gfx1100", "kernel": "load"},
    {"kind": "launch", "name": "load_kernel", "device": "AMD", "start": 0, "end": 5},
    {"counter_block": text(block), "record": 0, "layout": [["WAVES", "SQ", 0, {"se": 2}], ["HITS", "GL2C", 16, {}]]},
    {"thread_trace": text(encode(trace)), "record": 0, "code": 0, "engine": 4},
  ]
  for line in lines:
    line.update({key: value for key, value in (change or {}).items() if key in line})
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  return path


def test_the_listing_of_a_launch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  path = str(recorded(tmp_path / "t.jsonl"))
  assert main(["sqtt", path]) == 0
  lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
  assert lines[0] == "record 0: load_kernel" and "WAVES        7" in lines and "HITS         5" in lines
  assert "     4      2             2   2.0     511              510                  1" in lines
  assert lines[-3:] == [
    "0000         1       1        0  s_load_b32 s4, s[0:1], null",
    "0008         1     500      499  s_waitcnt lgkmcnt(0)",
    "000c         1       3        2  v_mov_b32_e32 v0, s4",
  ]
  assert main(["sqtt", path, "--launch", "0", "--wave", "0"]) == 0
  out = capsys.readouterr().out
  assert "SE4 SA0 WGP0 SIMD0 slot 0: from cycle 0 to 510" in out
  assert "      500     499  0008     s_waitcnt lgkmcnt(0)" in out
  assert main(["sqtt", path, "--launch", "0", "--packets", "4"]) == 0
  assert "510 WAVEEND delta=7 array=0 simd=0 unit=0 wave=0" in capsys.readouterr().out.splitlines()


def test_the_page_has_counters_and_waves(tmp_path: Path) -> None:
  trace = read_trace(recorded(tmp_path / "t.jsonl"))
  assert Recordings(trace.run).add_to_run() == []
  found = Answers(trace, "t.jsonl").waves(0)
  assert found["counters"] == {"WAVES": 7.0, "HITS": 5.0}
  (wave,) = found["waves"]
  assert wave["place"] == "SE4 SA0 WGP0 SIMD0 slot 0" and [row[3] for row in wave["rows"]] == [0, 8, 12]
  assert found["code"][0][1] == (8, "s_waitcnt lgkmcnt(0)")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"chip": "gfx1"}, "program 0 is of 'gfx1'; tiny-asm-amd knows gfx1100"),
    ({"program": text(b"\0" * 90)}, "program 0: this is no code object"),
    ({"thread_trace": text(b"\0" * 90)}, "the thread trace of record 0, shader engine 4: this is no thread trace"),
    ({"thread_trace": "?"}, "line 5: expected thread_trace, bytes in base64, found '?'"),
    ({"counter_block": text(b"")}, "the counters of record 0: WAVES: 2 values from byte 0 on do not fit a block of 0 "),
    ({"layout": [["WAVES", "SQ", 0, {"se": -1}]]}, "expected the parts of 'WAVES' as names and numbers from 1 on"),
  ],
)  # fmt: skip
def test_what_is_wrong_is_named(
  tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
  assert main(["sqtt", str(recorded(tmp_path / "t.jsonl", change))]) == 1
  assert message in capsys.readouterr().err


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--wave", "0"], "name the launch as well, with --launch"),
    (["--launch", "3"], "nothing was recorded of record 3; there is: 0"),
    (["--launch", "0", "--wave", "1"], "record 0 has no wave 1 whose instructions were traced; there is: 0 to 0"),
    (["--launch", "0", "--packets", "1"], "record 0 has no thread trace of shader engine 1; there is: 4"),
  ],
)
def test_what_is_not_there_is_named(
  tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
  assert main(["sqtt", str(recorded(tmp_path / "t.jsonl")), *arguments]) == 1
  assert message in capsys.readouterr().err


def test_a_trace_without_recordings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
  path = tmp_path / "t.jsonl"
  path.write_text(json.dumps({"profile": 1, "program": "made.py", "process": 1, "began": 0, "ended": 9}) + "\n")
  assert main(["sqtt", str(path)]) == 1
  assert "this trace has no thread traces and no counters" in capsys.readouterr().err
