"""A function that LLVM is told to leave as it is becomes code without its passes, and computes the same."""

from __future__ import annotations

import pytest

from tiny_runtime.llvm import Processor, compile_object, host_processor

pytest.importorskip("llvmlite")
TEXT = """
define internal i64 @twice.body(i64 %n) {
  %place = alloca i64
  store i64 %n, ptr %place
  %value = load i64, ptr %place
  %double = add i64 %value, %value
  ret i64 %double
}
define i64 @twice(i64 %n) {
  %result = call i64 @twice.body(i64 %n)
  ret i64 %result
}
define i64 @other(i64 %n) {
  %place = alloca i64
  store i64 %n, ptr %place
  %value = load i64, ptr %place
  ret i64 %value
}
"""
LEVEL = ("sroa", "instruction_combine")


@pytest.mark.parametrize("processor", [host_processor(), Processor("aarch64-unknown-linux-gnu")], ids=["here", "arm64"])
def test_one_function_is_left_as_it_is(processor: Processor, capfd: pytest.CaptureFixture[str]) -> None:
  usual = compile_object(TEXT, processor, LEVEL)
  assert compile_object(TEXT, processor, LEVEL, "other") != usual  # its local variable stays in memory
  assert compile_object(TEXT, processor, LEVEL, "twice") == compile_object(TEXT, processor, LEVEL, "twice")
  assert capfd.readouterr() == ("", "")
