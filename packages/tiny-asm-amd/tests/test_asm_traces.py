"""Thread traces and counters that GPUs recorded, and traces made by hand."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter as Count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiny_asm_amd import Isa, Kernel, assemble, code_object, s, v
from tiny_asm_amd.errors import TraceError
from tiny_asm_amd.traces.counters import Counter, totals
from tiny_asm_amd.traces.layouts import layout
from tiny_asm_amd.traces.packets import Packet, decode, encode
from tiny_asm_amd.traces.program import Program, class_of
from tiny_asm_amd.traces.waves import Wave, occupancy, waves

FILES = sorted(Path(__file__).with_name("recordings").glob("*.jsonl.gz"))
HEADS = {"rdna3": Packet(layout("rdna3").by_name["LAYOUT"], 0b0010001 | 3 << 7),
         "rdna4": Packet(layout("rdna4").by_name["LAYOUT"], 0b0010001 | 4 << 7),
         "cdna": Packet(layout("cdna").by_name["TIMESTAMP"], 0b0010001)}  # fmt: skip


class Launch:
  """What was recorded of one launch."""

  def __init__(self) -> None:
    self.traces: list[tuple[dict[str, Any], bytes]] = []
    self.counters: list[Counter] = []
    self.block = b""
    self.program: Program | None = None


def launches(path: Path) -> list[Launch]:
  """The launches of a recording."""
  programs: dict[int, Program] = {}
  found: list[Launch] = []
  for text in gzip.decompress(path.read_bytes()).decode().splitlines():
    line = json.loads(text)
    if "program" in line and "code" in line:
      programs[line["code"]] = Program.of(base64.b64decode(line["program"]), line["chip"])
    elif "kind" in line:
      found.append(Launch())
    elif "thread_trace" in line:
      found[line["record"]].traces.append((line, base64.b64decode(line["thread_trace"])))
      found[line["record"]].program = programs[line["code"]]
    elif "counter_block" in line:
      of = found[line["record"]]
      of.block = base64.b64decode(line["counter_block"])
      of.counters = [Counter(name, at, parts, block) for name, block, at, parts in line["layout"]]
  return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".jsonl.gz"))
def test_recordings(path: Path) -> None:
  """Read to their ends; waves start and end in pairs; what they issue is the program, from its first instruction to
  S_ENDPGM along the branches taken; and counters count the same instructions."""
  for launch in launches(path):
    program, all_waves = launch.program, 0
    assert program is not None and launch.traces
    for about, data in launch.traces:
      packets = decode(data)
      assert packets.rest <= 16, "a packet that the end of the buffer cuts off has its first bytes at most"
      assert encode(packets) == data[: len(data) - packets.rest // 8]
      assert (np.diff(packets.times) >= 0).all()
      counts = packets.counts()
      assert counts.get("WAVESTART") == counts.get("WAVEEND")
      found = waves(packets, program)
      all_waves += len(found)
      assert not [wave.problem for wave in found if wave.problem]
      assert all(wave.end is not None and wave.end > wave.start for wave in found)
      assert occupancy(found)[-1:] == [(max(w.end or 0 for w in found), 0)] if found else True
      traced = [wave for wave in found if wave.steps]
      assert about["detailed"] or not traced
      for wave in traced:
        assert wave.steps[0].address == program.entry
        assert [step.time for step in wave.steps] == sorted(step.time for step in wave.steps)
        assert sum(row.duration for row in wave.rows()) == wave.steps[-1].time - wave.start + 1
    counted = totals(launch.counters, launch.block)
    empty = program.at(program.entry)
    assert empty is not None and all_waves
    for _, data in launch.traces:
      for wave in waves(decode(data), program):
        classes = Count(class_of(step.instruction) for step in wave.steps)
        if wave.steps:
          assert [counted[f"SQ_INSTS_{unit}"] for unit in ("VALU", "SALU")] == [
            all_waves * classes[kind] for kind in ("vector", "scalar")
          ]
    straight = straight_line(program)
    if straight is not None:  # then each wave runs all of it, traced or not
      assert counted["SQ_INSTS_VALU"] == all_waves * straight["vector"]
      assert counted["SQ_INSTS_SALU"] == all_waves * straight["scalar"]


def straight_line(program: Program) -> Count[str] | None:
  """How many instructions of each class a program without branches has up to its end; None if it has branches."""
  at, found = program.entry, Count[str]()
  while (instruction := program.at(at)) is not None:
    found[class_of(instruction)] += 1
    if class_of(instruction) in ("branch", "end"):
      return None if found["branch"] else found
    at += instruction.size
  raise AssertionError(f"the program has no end at {at:#x}")


def test_a_wave_of_a_recording() -> None:
  """The sum of two vectors on a Radeon RX 7900: it waits for memory three times."""
  launch = launches(next(path for path in FILES if "gfx1100-plus" in path.name))[0]
  (wave,) = [w for _, data in launch.traces for w in waves(decode(data), launch.program)]
  rows = [(row.waiting, str(row.step.instruction)) for row in wave.rows()]
  assert [text for _, text in rows] == [
    "s_clause 1", "s_load_b128 s[4:7], s[0:1], null", "s_load_b64 s[0:1], s[0:1], 0x10", "v_lshlrev_b32_e32 v0, 2, v0",
    "s_waitcnt lgkmcnt(0)", "s_clause 1", "global_load_b32 v1, v0, s[6:7]", "global_load_b32 v2, v0, s[0:1]",
    "s_waitcnt vmcnt(0)", "v_add_f32_e32 v1, v1, v2", "global_store_b32 v0, v1, s[4:5]",
  ]  # fmt: skip
  # the first instruction is fetched from memory
  assert [text for waiting, text in rows if waiting > 100] == [
    "s_clause 1",
    "s_waitcnt lgkmcnt(0)",
    "s_waitcnt vmcnt(0)",
  ]


@pytest.mark.parametrize("name", HEADS)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_packets_round_trip(name: str, data: st.DataObject) -> None:
  of = layout(name)
  made = [HEADS[name]]
  for kind in data.draw(st.lists(st.sampled_from([k for k in of.kinds if k.name not in ("LAYOUT", "TIMESTAMP")]))):
    fields = {key: data.draw(st.integers(0, (1 << (high - low + 1)) - 1)) for key, (high, low) in kind.fields.items()}
    packet = Packet(kind, kind.packed(**fields))
    assert kind.fields_of(packet.value) == fields
    made.append(packet)
  # a pattern may be the beginning of another's: such packets are of that kind, and have its size
  raw = encode(made)
  found = decode(raw)
  assert encode(found)[: len(raw) - (found.rest + 7) // 8] == raw[: len(raw) - (found.rest + 7) // 8]
  if all(of.kinds[of.by_low_byte[packet.value & 255]] is packet.kind for packet in made):
    assert [(p.kind, p.value) for p in found][: len(made)] == [(p.kind, p.value) for p in made]


@pytest.mark.parametrize("name", HEADS)
def test_long_traces(name: str) -> None:
  """Packets of all sizes, 100 KB of them; then one that is none, and every place where the last may be cut off."""
  of, random = layout(name), np.random.default_rng(0)
  kinds = [kind for kind in of.kinds if of.by_low_byte[int(kind.pattern, 2)] == of.kinds.index(kind)]
  kinds = [kind for kind in kinds if kind.bits > 8 and kind.name not in ("LAYOUT", "TIMESTAMP")]
  made = [HEADS[name]]
  made += [Packet(kinds[n], kinds[n].packed()) for n in random.integers(0, len(kinds), 25000)]
  raw = encode(made)
  found = decode(raw)
  assert [found.layout.kinds[n] for n in found.kinds[: len(made)]] == [packet.kind for packet in made]
  assert found.at[: len(made)].tolist() == np.cumsum([0, *[packet.kind.bits for packet in made[:-1]]]).tolist()
  for cut in range(1, 10):
    some = decode(raw[:-cut])
    whole = found.at + [of.kinds[n].bits for n in found.kinds] <= 8 * (len(raw) - cut)
    assert (some.at == found.at[whole]).all() and some.rest == 8 * (len(raw) - cut) - (
      int(found.at[whole][-1]) + of.kinds[found.kinds[whole][-1]].bits
    )
  if none := [byte for byte in range(256) if of.by_low_byte[byte] < 0]:
    wrong, at = bytearray(raw), next(int(p) for p in found.at[20000:] if p % 8 == 0)
    wrong[at // 8] = none[0]
    with pytest.raises(TraceError, match=f"bit {at} of the trace .* no packet begins with {none[0]:08b}"):
      decode(bytes(wrong))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([*HEADS, ""]))
def test_any_bytes_are_read_or_refused(data: bytes, head: str) -> None:
  program = Program("gfx1100", assemble("s_nop 0\ns_endpgm", "gfx1100"))
  try:
    packets = decode((encode([HEADS[head]]) if head else b"") + data)
    waves(packets, program)
  except TraceError:
    return
  assert len(packets)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 5000), st.integers(0, 255))
def test_any_code_object_is_read_or_refused(at: int, byte: int) -> None:
  whole = bytearray(code_object([Kernel.of("gfx1100", "end", ["s_endpgm"], argument_bytes=0, threads=32)]))
  assert Program.of(bytes(whole), "gfx1100", "end").at(0) is not None
  whole[at % len(whole)] = byte
  for made in (bytes(whole), bytes(whole[:at])):
    try:
      Program.of(made, "gfx1100")
    except TraceError:
      pass


def traced(*packets: tuple[str, dict[str, int]]) -> list[Wave]:
  """The waves of a trace of RDNA 3 of the program below."""
  kinds = layout("rdna3").by_name
  made = [HEADS["rdna3"], *[Packet(kinds[name], kinds[name].packed(**fields)) for name, fields in packets]]
  return waves(decode(encode(made)), PROGRAM)


PROGRAM = Program(
  "gfx1100",
  assemble(
    """
  s_load_b64 s[0:1], s[0:1], null
loop: v_add_f32_e32 v1, v1, v2
  s_delay_alu instid0(VALU_DEP_1)
  s_cbranch_scc1 loop
  s_waitcnt lgkmcnt(0)
  s_endpgm
""",
    "gfx1100",
  ),
)
Told = tuple[str, dict[str, int]]
LOAD: Told = ("INST", {"operation": 1})
ADD: Told = ("VALUINST", {})
AGAIN: Told = ("INST", {"operation": 3})
ON: Told = ("INST", {"operation": 4})
BEGIN: Told = ("WAVESTART", {"wave": 0})
WAIT: Told = ("IMMEDIATE", {"delta": 5})
END: Told = ("WAVEEND", {})


def test_branches_are_followed() -> None:
  (wave,) = traced(BEGIN, LOAD, ADD, AGAIN, ADD, AGAIN, ADD, ON, WAIT, END)
  assert [step.address for step in wave.steps] == [0, 8, 16, 8, 16, 8, 16, 20]
  assert (wave.problem, wave.start, wave.end) == ("", 0, 5) and [row[:3] for row in wave.rows()][-2:] == [
    (0, 1, 0),
    (1, 5, 4),
  ]


@pytest.mark.parametrize(
  ("packets", "problem"),
  [
    ((BEGIN, LOAD, LOAD, END), "cycle 0, address 0x8: the trace tells of an instruction of class 'scalar memory', and "
                               "the program has v_add_f32_e32 v1, v1, v2 (vector)"),
    ((BEGIN, LOAD, ADD, ON, END), "the wave ends at cycle 0 before s_waitcnt lgkmcnt(0) at 0x14, not at s_endpgm"),
    ((BEGIN, LOAD, ADD, ON, WAIT, WAIT, END), "class 'immediate', and the program has s_endpgm 0 (end)"),
    ((BEGIN, LOAD, ADD, ADD, END), "class 'vector', and the program has s_cbranch_scc1 0xfffd (branch)"),
    ((BEGIN, LOAD, BEGIN), "another wave starts in its place at cycle 0"),
  ],
)  # fmt: skip
def test_what_does_not_fit_is_said(packets: list[tuple[str, dict[str, int]]], problem: str) -> None:
  assert problem in traced(*packets)[0].problem


def test_instructions_of_other_simds_are_not_the_waves() -> None:
  (wave,) = traced(BEGIN, LOAD, ("INST", {"operation": 0x51}), ADD, ON, WAIT, END)
  assert len(wave.steps) == 4 and not wave.problem


def test_times() -> None:
  kinds = layout("rdna3").by_name
  rows = [("TS_SHORT", {"delta": 3}), ("TS_OR_MARK", {"value": 1000}), ("TS_OR_MARK", {"value": 5, "real": 1}),
          ("TS_LONG", {"delta": 1 << 40}), ("INST", {"delta": 7}), ("NOP", {})]  # fmt: skip
  packets = decode(encode([HEADS["rdna3"], *[Packet(kinds[n], kinds[n].packed(**fields)) for n, fields in rows]]))
  assert packets.times[:7].tolist() == [0, 7, 1007, 1007, (1 << 40) + 1007, (1 << 40) + 1014, (1 << 40) + 1014]
  kinds = layout("cdna").by_name
  rows = [("MISC", {"delta": 10}), ("TIMESTAMP", {"time": 1000}), ("INST", {"delta": 1}), ("TIMESTAMP", {"time": 5000})]
  packets = decode(encode([HEADS["cdna"], *[Packet(kinds[n], kinds[n].packed(**fields)) for n, fields in rows]]))
  assert packets.times.tolist() == [0, 40, 40, 44, 4040]


def test_packets_are_read() -> None:
  kinds = layout("rdna4").by_name
  packet = Packet(kinds["WAVESTART"], kinds["WAVESTART"].packed(wave=17, simd=2, unit=3, array=1))
  assert (packet.wave, packet.simd, packet.unit, packet.array) == (17, 2, 3, 1)
  assert str(packet) == "0 WAVESTART delta=0 array=1 simd=2 unit=3 wave=17 id=0"
  with pytest.raises(AttributeError, match="WAVESTART has no field 'slot', only delta"):
    packet.slot  # noqa: B018
  with pytest.raises(TraceError, match="WAVESTART: wave = 32 does not fit 5 bits"):
    kinds["WAVESTART"].packed(wave=32)
  with pytest.raises(TraceError, match="INST has no field 'op', only delta, wave, operation"):
    kinds["INST"].packed(op=1)


@pytest.mark.parametrize(
  ("data", "message"),
  [
    (b"", "this is no thread trace: expected a first packet that tells the layout"),
    (bytes(64), "lowest bits 0010001), found 0000000000000000"),
    (encode([HEADS["rdna3"]]) + b"\x07" * 8, "bit 64 of the trace (rdna3): no packet begins with 00000111"),
  ],
)
def test_what_is_no_trace(data: bytes, message: str) -> None:
  with pytest.raises(TraceError, match=re.escape(message)):
    decode(data)


def test_counters() -> None:
  block = b"".join(n.to_bytes(8, "little") for n in range(10))
  of = Counter("WAVES", 16, {"se": 2, "wgp": 3}, "SQ")
  assert of.values(block) == {(0, 0): 2, (0, 1): 3, (0, 2): 4, (1, 0): 5, (1, 1): 6, (1, 2): 7}
  assert totals([of, Counter("HITS", 0, {"inst": 2})], block) == {"WAVES": 27, "HITS": 1}
  for wrong in (Counter("MANY", 40, {"se": 6}), Counter("NONE", 0, {"se": 0}), Counter("BEFORE", -8, {"se": 1}),
                Counter("HUGE", 0, {"se": 1 << 40})):  # fmt: skip
    with pytest.raises(TraceError, match=f"{wrong.name}: .* do not fit a block of 80 bytes"):
      wrong.values(block)


def test_a_kernel_of_this_package() -> None:
  """The entry is where the descriptor says, for the kernel that is asked for."""
  isa = Isa("gfx1100")
  kernels = [Kernel.of("gfx1100", name, [isa.v_mov_b32(v[0], s[n]), "s_endpgm"], argument_bytes=0, threads=32)
             for n, name in enumerate(("first", "second"))]  # fmt: skip
  made = code_object(kernels)
  for n, name in enumerate(("first", "second")):
    program = Program.of(made, "gfx1100", name)
    assert str(program.at(program.entry)) == f"v_mov_b32_e32 v0, s{n}"
  for lanes, shown in ((32, "v_cmp_gt_u32_e32 vcc_lo, v0, v0"), (64, "v_cmp_gt_u32_e32 vcc, v0, v0")):
    kernel = Kernel.of("gfx1100", "wide", [shown, "s_endpgm"], threads=64, lanes=lanes)
    program = Program.of(code_object([kernel]), "gfx1100", "wide")
    assert program.lanes == lanes and str(program.at(program.entry)) == shown
  with pytest.raises(TraceError, match="no kernel 'third', only first, second"):
    Program.of(made, "gfx1100", "third")


def test_occupancy() -> None:
  found = [Wave(0, 0, 0, 0, 5, 20), Wave(0, 0, 0, 1, 5, 30), Wave(0, 0, 0, 2, 20)]
  assert occupancy(found) == [(5, 2), (20, 2), (30, 1)]
