"""What is known of the processor, and when LLVM is asked anew."""

from __future__ import annotations

import os
import sys

import pytest

from tiny_runtime.llvm import Processor, machine
from tiny_runtime.llvm.identity import identity

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere LLVM is asked in each process")


def test_a_processor_says_the_same_each_time() -> None:
  told = identity()
  assert told and told == identity()
  if os.uname().machine == "x86_64":
    names = [part.split(":")[0] for part in told.split()]
    assert names[0] == "0.0" and "1.0" in names and "80000001.0" in names


def test_another_processor_is_asked_anew_with_the_same_cache(monkeypatch: pytest.MonkeyPatch) -> None:
  """Where a folder of caches moves to another processor, what it says of the first is not taken; also under an
  emulator, where `/proc/cpuinfo` is that of the host."""
  asked = []

  def ask() -> str:
    asked.append("llvm")
    return f"x86_64-unknown-linux-gnu\nprocessor{len(asked)}\n+avx2"

  def first_answer() -> Processor:
    machine.host_processor.cache_clear()
    return machine.host_processor()

  monkeypatch.setattr(machine, "_ask_processor", ask)
  monkeypatch.setattr(machine, "library", lambda: "a library of the test")
  try:
    monkeypatch.setattr(machine, "identity", lambda: f"one {os.getpid()}")
    assert [first_answer().cpu, first_answer().cpu] == ["processor1", "processor1"]
    monkeypatch.setattr(machine, "identity", lambda: f"another {os.getpid()}")
    assert first_answer().cpu == "processor2"
    monkeypatch.setattr(machine, "identity", lambda: "")
    assert [first_answer().cpu, first_answer().cpu] == ["processor3", "processor4"]
  finally:
    machine.host_processor.cache_clear()


def test_products_of_narrow_numbers_of_arm64_processors_are_found() -> None:
  """LLVM's answer for Linux on arm64 has no `dotprod`, no `i8mm` and no `bf16`."""
  listed = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd crc32 atomics asimddp sve i8mm bf16\n"
  assert machine.with_arm_features("+crc,+lse,+neon", listed) == "+crc,+lse,+neon,+dotprod,+i8mm,+bf16"
  assert machine.with_arm_features("+neon,-dotprod", "Features\t: fp asimd asimddp\n") == "+neon,-dotprod"
  assert machine.with_arm_features("+avx2", "flags\t\t: fpu i8mm\n") == "+avx2"
  assert machine.with_arm_features("", "") == ""
