"""The conformance kit finds backends that are wrong in one small thing: each row has one, and a case that finds it.

The case is called, without a run of the kit around it; those in test_runtime_wrong_backends.py are runs, which look at
the report, too. That the case passes where the mistake is not, and some that take longer: `nightly`.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from wrong_backends import memory, packages, queues
from wrong_backends.numbers import BF16, F16, F32, F64, I32, I64, RULES, U32, U64

from tiny_runtime.conformance.failure import Misbehaved
from tiny_runtime.conformance.target import find_target, reference
from tiny_runtime.conformance.test_level5_graphs import Calls
from tiny_runtime.contract import Backend
from tiny_uop import DType, Ops, dtypes

REF, QUEUED, LARGE = "tiny_runtime.ref:BACKEND", "wrong_backends.devices:QUEUED", "wrong_backends.memory:LARGE"
SEVERAL, ARCHS = "wrong_backends.graphs:SEVERAL", "wrong_backends.packages:ARCHS"
E4, E5 = dtypes.fp8e4m3, dtypes.fp8e5m2


@dataclass(frozen=True)
class Row:
  """A wrong backend, the case that finds it, and the backend that is the same but for the mistake."""

  backend: str
  case: str
  arguments: tuple[Any, ...] = ()
  says: str = ""
  right: str = REF

  @property
  def name(self) -> str:
    return self.backend.partition(":")[2]


def numbers(name: str, case: str, *arguments: Any, says: str = "") -> Row:
  return Row(f"wrong_backends.numbers:{name}", case, arguments, says)


def cast(name: str, *types: DType, says: str = "") -> Row:
  return numbers(name, "level2_ops.test_cast", *types, says=says)


def rounding(name: str, *types: DType) -> Row:
  return numbers(name, "level2_ops.test_rounding_to_nearest_even", *types, says="a number is rounded once")


def op(name: str, op: Ops, dtype: DType, says: str = "") -> Row:
  return numbers(name, "level2_ops.test_op", op, dtype, says=says)


def algebra(name: str, expression: str) -> Row:
  return numbers(name, "level2_expressions.test_no_algebra", expression, F32, says="no fast-math")


def constants(name: str, dtype: DType) -> Row:
  return numbers(name, "level2_expressions.test_constants", dtype, says="how constants are written")


def extremes(name: str, dtype: DType) -> Row:
  return numbers(name, "level3_programs.test_reduce_extremes", dtype, says="what a reduction begins with")


def places(name: str, case: str, *arguments: Any, says: str = "", right: str = REF) -> Row:
  return Row(f"wrong_backends.memory:{name}", case, arguments, says, right)


def queue(name: str, case: str, *arguments: Any, says: str = "", right: str = QUEUED) -> Row:
  return Row(f"wrong_backends.queues:{name}", case, arguments, says, right)


def package(name: str, case: str, *arguments: Any, says: str = "", right: str = REF) -> Row:
  return Row(f"wrong_backends.packages:{name}", case, arguments, says, right)


ORDER, LIFE, GRAPHS = "level4_order", "level4_life_cycle", "level5_graphs"
PRODUCTS = "level2_expressions.test_products_and_sums"
CONVERTED = "level2_expressions.test_a_product_that_is_converted_is_rounded"
MAPPED = "level5_capabilities.test_host_mapped_shows_what_launches_wrote_after_sync"
WRITTEN = f"{ORDER}.test_data_of_a_write_behind_launches_may_be_reused"

ROWS = [
  rounding("F64_F16_BY_F32", F64, F16),
  rounding("F64_BF16_BY_F32", F64, BF16),
  rounding("F64_FP8_BY_F32", F64, E5),
  rounding("F32_FP8_BY_F16", F32, E4),
  rounding("F32_FP8_BY_BF16", F32, E5),
  rounding("I64_F32_BY_F64", I64, F32),
  rounding("U64_F32_BY_F64", U64, F32),
  rounding("I32_BF16_BY_F32", I32, BF16),
  rounding("I64_BF16_BY_F32", I64, BF16),
  cast("U64_F64_SIGNED", U64, F64),
  cast("U32_F32_SIGNED", U32, F32),
  cast("I64_F64_BY_I32", I64, F64),
  cast("F32_I32_NEAREST", F32, I32, says="float to integer toward zero"),
  cast("F64_U64_BY_I64", F64, U64),
  cast("F32_BOOL_BY_I32", F32, dtypes.bool),
  cast("I32_BOOL_BY_U8", I32, dtypes.bool),
  cast("I32_I8_SATURATES", I32, dtypes.int8, says="integers wrap"),
  cast("I8_I32_UNSIGNED", dtypes.int8, I32),
  cast("I32_I64_UNSIGNED", I32, I64),
  cast("F32_F64_LOSES_ZERO", F32, F64, says="the sign of zero only"),
  cast("F32_F16_FLUSHES", F32, F16),
  cast("F32_F16_SATURATES", F32, F16),
  numbers("F32_BF16_NAN", "level2_ops.test_nan_stays_nan", F32, BF16, says="adding to the bits of a NaN"),
  op("EXP2_FLUSHES", Ops.EXP2, F32, "subnormal results are flushed"),
  op("EXP2_FLUSHES_F64", Ops.EXP2, F64, "subnormal results are flushed"),
  op("EXP_FLUSHES", Ops.EXP, F32, "subnormal results are flushed"),
  op("EXP2_OVERFLOWS", Ops.EXP2, F32),
  op("EXP_OVERFLOWS", Ops.EXP, F32),
  op("LOG2_FLUSHES", Ops.LOG2, F32),
  op("LOG_NEAR_1", Ops.LOG, F32),
  op("LOG2_NEAR_1", Ops.LOG2, F64),
  op("SIN_NEAR_PI", Ops.SIN, F32),
  op("COS_NEAR_PI", Ops.COS, F64),
  op("SIN_LARGE", Ops.SIN, F32),
  op("SIN_LOSES_ZERO", Ops.SIN, F32, "the sign of zero only"),
  op("EXP_IN_F16", Ops.EXP, F16),
  op("LDEXP_BY_EXP2", Ops.LDEXP, F32),
  op("LDEXP_TWICE", Ops.LDEXP, F32),
  op("SQRT_ESTIMATE", Ops.SQRT, F32),
  op("SQRT_F64_BY_F32", Ops.SQRT, F64),
  op("TRUNC_BY_I32", Ops.TRUNC, F32),
  op("FDIV_SELDOM", Ops.FDIV, F32, "no reciprocal estimate"),
  op("FDIV_F64", Ops.FDIV, F64),
  op("FDIV_F16", Ops.FDIV, F16),
  op("MUL_BF16_TRUNCATES", Ops.MUL, BF16),
  op("ADD_F64_BY_F32", Ops.ADD, F64),
  op("MUL_I64_BY_F64", Ops.MUL, I64),
  op("MUL_I64_LOW", Ops.MUL, I64),
  op("ADD_U64_BY_F64", Ops.ADD, U64),
  op("ADD_I8_SATURATES", Ops.ADD, dtypes.int8, "integers wrap"),
  op("ADD_BOOL_XOR", Ops.ADD, dtypes.bool, "For bool it is or"),
  op("LESS_I64_BY_F64", Ops.CMPLT, I64),
  op("LESS_U32_SIGNED", Ops.CMPLT, U32, "signed and unsigned differ"),
  op("LESS_U64_SIGNED", Ops.CMPLT, U64),
  op("LESS_BY_DIFFERENCE", Ops.CMPLT, I32),
  op("EQUAL_U64_LOW", Ops.CMPEQ, U64),
  op("MAX_U8_SIGNED", Ops.MAX, dtypes.uint8),
  op("SHL_I64_BY_31", Ops.SHL, I64),
  op("SHR_I32_LOGICAL", Ops.SHR, I32, "arithmetic for signed types"),
  op("SHR_U8_ARITHMETIC", Ops.SHR, dtypes.uint8),
  op("DIV_I32_BY_F32", Ops.TRUNCDIV, I32),
  op("DIV_I64_BY_F64", Ops.TRUNCDIV, I64),
  op("DIV_U64_SIGNED", Ops.TRUNCDIV, U64),
  op("DIV_ZERO_IS_ALL_ONES", Ops.FLOORDIV, U32, "x / 0 is 0"),
  op("MOD_ZERO_IS_IT", Ops.FLOORMOD, I32, "x % 0 is 0"),
  op("MOD_LIKE_C", Ops.FLOORMOD, dtypes.int16, "the divisor's sign"),
  op("THREEFRY_SWAPPED", Ops.THREEFRY, U64),
  op("LESS_NAN", Ops.CMPLT, F32, "comparisons with NaN are false"),
  op("NE_NAN", Ops.CMPNE, F32, "!= is true"),
  op("EQ_BITS", Ops.CMPEQ, F32, "0.0 equals -0.0"),
  op("MAX_SECOND_NAN", Ops.MAX, F64, "NaN if either is NaN"),
  op("WHERE_BY_PRODUCT", Ops.WHERE, F32),
  op("ADD_LOSES_ZERO", Ops.ADD, F32, "the sign of zero only"),
  numbers("FUSED", PRODUCTS, "a*b+c", F32, says="fused_multiply_add is not claimed"),
  numbers("FUSED_F16", PRODUCTS, "a*b+c", F16, says="products of another type"),
  numbers("FUSED_BF16", PRODUCTS, "a*b-c", BF16, says="products of another type"),
  numbers("FUSED_CAST", CONVERTED, F32, F64, says="a wider type"),
  numbers("DISTRIBUTED", PRODUCTS, "a*b+a*c", F32, says="fast-math"),
  algebra("REASSOCIATED", "(x+y)+z"),
  algebra("CANCELLED", "(x+y)-y"),
  algebra("DIVIDED_BACK", "(x/y)*y"),
  algebra("MINUS_ITSELF", "x-x"),
  algebra("BY_ITSELF", "x/x"),
  algebra("NEVER_NAN", "x!=x?y:z"),
  algebra("TIMES_ZERO", "x*0"),
  algebra("PLUS_ZERO", "x+0"),
  algebra("RECIPROCAL_OF_CONSTANT", "x/3"),
  constants("SIX_DIGITS", F32),
  constants("F64_AS_F32", F64),
  constants("POSITIVE_ZERO", F32),
  constants("NO_NAN_LITERAL", F32),
  constants("I64_IN_32_BITS", I64),
  constants("U64_SIGNED_LITERAL", U64),
  extremes("MAX_FROM_ZERO", F32),
  extremes("MAX_FROM_LOWEST", F32),
  extremes("MAX_I32_FROM_ONE_MORE", I32),
  extremes("MAX_SKIPS_NAN", F32),
  extremes("SUM_I64_IN_32", I64),
  numbers("SUM_F64_IN_F32", "level3_programs.test_sum_of_doubles"),
  numbers("LOOPS_OF_16_BITS", "level3_programs.test_sizes", 65537),
  numbers("INDEX_OF_16_BITS", "level3_programs.test_far_elements", says="how many bits an index has"),
  numbers("NO_ALTERNATIVE", "level3_programs.test_gated_load"),
  numbers("NO_GATE_OF_STORES", "level3_programs.test_gated_store"),
  places("READS_UP_TO_4M", "level1_memory.test_round_trip", (4 << 20) + 5, says="the last 5 bytes are lost"),
  places("WRITES_UP_TO_4M", "level1_memory.test_round_trip", (4 << 20) + 5, says="the last 5 bytes are lost"),
  places("READS_UP_TO_16M", "level1_memory.test_round_trip", (16 << 20) + 7),
  places("WRITE_OFFSETS_16", "level1_memory.test_far_places", says="offsets of write and read"),
  places("READ_OFFSETS_16", "level1_memory.test_far_places"),
  places("WRITE_OFFSETS_20", "level1_memory.test_far_places"),
  places("READ_OFFSETS_24", "level1_memory.test_far_places"),
  places("WRITE_OFFSETS_31", "level1_memory.test_places_beyond_31_bits", right=LARGE),
  places("READ_OFFSETS_32", "level1_memory.test_places_beyond_31_bits", right=LARGE),
  places("LAUNCH_OFFSETS_16", "level3_programs.test_buffers_at_an_offset", (65540, 1048588), says="byte offset"),
  places("LAUNCH_OFFSETS_24", "level3_programs.test_buffers_at_an_offset", (0, 16777280)),
  places("LAUNCH_OFFSETS_32", "level3_programs.test_buffers_beyond_31_bits", says="byte", right=LARGE),
  places("MISALIGNED", "level5_capabilities.test_memory_is_aligned", says="a multiple of 8"),
  places("STAGES", "level3_programs.test_windows_of_one_memory", says="three places in one memory"),
  places("EIGHT_BUFFERS", "level3_programs.test_many_buffers"),
  places("EIGHT_INTEGERS", "level3_programs.test_more_variables"),
  places("UNSIGNED_INTEGERS", "level3_programs.test_variables_beyond_32_bits", -1),
  places("TRUE_IS_255", "level2_ops.test_op", Ops.CMPLT, I32, says="neither 0 nor 1"),
  places("LAUNCHES_LEAK", f"{LIFE}.test_launches_leave_nothing", says="bytes of memory"),
  places("LAUNCHES_KEEP_FILES", f"{LIFE}.test_launches_leave_nothing", says=" files"),
  places("LOADS_LEAK", f"{LIFE}.test_programs_leave_nothing", says="bytes of memory"),
  places("LAUNCHES_LEAK_64", f"{LIFE}.test_launches_leave_nothing", says="bytes of malloc"),
  places("LOADS_LEAK_8K", f"{LIFE}.test_programs_leave_nothing", says="bytes of malloc"),
  places("LOADS_KEEP_PAGES", f"{LIFE}.test_programs_leave_nothing", says="bytes of memory"),
  places("LOADS_KEEP_FILES", f"{LIFE}.test_programs_leave_nothing", says=" files"),
  places("ALLOCS_LEAK", f"{LIFE}.test_memories_leave_nothing", says="bytes of memory"),
  places("WRITES_LEAK", f"{LIFE}.test_memories_leave_nothing", says="bytes of memory"),
  places("OPENS_LEAK", f"{LIFE}.test_devices_leave_nothing", says="bytes of memory"),
  places("OPENS_KEEP_FILES", f"{LIFE}.test_devices_leave_nothing", says=" files"),
  places("OPENS_KEEP_THREADS", f"{LIFE}.test_devices_leave_nothing", says="threads"),
  queue("SMALL_READS", f"{ORDER}.test_reads_of_any_size_wait", 16, says="whatever its size"),
  queue("LARGE_READS", f"{ORDER}.test_reads_of_any_size_wait", 1 << 18),
  queue("INSIDE_READS", f"{ORDER}.test_reads_and_writes_of_any_place_wait", 32, says="whatever the offset"),
  queue("INSIDE_WRITES", f"{ORDER}.test_reads_and_writes_of_any_place_wait", 32, says="whatever the offset"),
  queue("SMALL_WRITES", f"{ORDER}.test_writes_of_any_size_wait", 16, says="whatever its size"),
  queue("LARGE_FREES", f"{ORDER}.test_frees_of_any_size_wait", 1 << 18, says="lost"),
  queue("NO_SYNC", f"{ORDER}.test_waiting_and_time", says="sync returned before"),
  queue("NO_SYNC_MAPPED", MAPPED, says="sync waits", right="wrong_backends.queues:MAPPED"),
  queue("NO_WAIT", f"{ORDER}.test_waiting_and_time", says="wait=True returned before"),
  queue("MILLISECONDS", f"{ORDER}.test_waiting_and_time", says="it is seconds, not milli", right=REF),
  queue("MICROSECONDS", f"{ORDER}.test_waiting_and_time", says="it is seconds, not milli", right=REF),
  queue("KILOSECONDS", f"{ORDER}.test_waiting_and_time", says="it is seconds, not milli", right=REF),
  queue("ALWAYS_THE_SAME", f"{ORDER}.test_waiting_and_time", says="another time than a clock", right=REF),
  queue("SINCE_OPENED", f"{ORDER}.test_waiting_and_time", says="of this launch alone", right=REF),
  queue("KEEPS_SEQUENCES", f"{ORDER}.test_sequences_may_be_reused", says="may be reused"),
  queue("KEEPS_DATA", WRITTEN, 1 << 15, says="a copy of the data"),
  queue("BY_NAME", f"{LIFE}.test_programs_are_told_apart", says="by name, size or address", right=REF),
  queue("BY_PLACE", f"{LIFE}.test_programs_are_told_apart", says="by name, size or address", right=REF),
  queue("BY_LENGTH", f"{LIFE}.test_programs_are_told_apart", says="by name, size or address", right=REF),
  queue("FORGETS_PROGRAMS", f"{ORDER}.test_programs_are_there_until_launches_are_done", says="holds its program"),
  queue("GRAPHS_INTEGERS", f"{GRAPHS}.test_other_variables", right=SEVERAL),
  queue("GRAPHS_ONCE", f"{GRAPHS}.test_other_memories", right=SEVERAL),
  queue("GRAPHS_BY_MEMORY", f"{GRAPHS}.test_one_memory_in_two_positions", right=SEVERAL),
  queue("GRAPHS_OFFSETS", f"{GRAPHS}.test_far_offsets", right=SEVERAL),
  queue("GRAPHS_NO_WAIT", f"{GRAPHS}.test_waiting_and_time", says="waits for its calls", right=SEVERAL),
  queue("GRAPHS_MILLISECONDS", f"{GRAPHS}.test_waiting_and_time", says="its seconds are seconds", right=SEVERAL),
  queue("GRAPHS_LIST", f"{GRAPHS}.test_sequences_may_be_reused", says="of its lists", right=SEVERAL),
  package("KEY_PROCESS", "level0_package.test_compile_is_deterministic", says="no number of the process"),
  package("KEY_TIME", "level0_package.test_compile_is_deterministic", says="no time"),
  package("KEY_FOLDER", "level0_package.test_compile_is_deterministic", says="no folder"),
  package("KEY_HASH", "level0_package.test_compile_is_deterministic", says="no hash()"),
  package("KEY_ARCH", "level0_package.test_the_key_depends_on_the_arch", says="python8 and python16", right=ARCHS),
  package("KEY_ONE_ARCH", "level0_package.test_the_key_depends_on_the_arch", says="make different programs",
          right="wrong_backends.packages:ONE_ARCH"),
  package("KEY_EMPTY", "level0_package.test_compiler_key_is_stable", says="not empty"),
  package("READ_FLAGS", "level3_programs.test_update_in_place", says="what was there before"),
  package("ALL_READ", "level3_programs.test_sizes", 5, says="what was there before"),
  package("NARROW", "level3_programs.test_sizes", 5, says="Binary.params"),
]  # fmt: skip

SLOW = (
  "KEY_TIME", "KEY_FOLDER", "KEY_HASH", "MICROSECONDS", "KILOSECONDS", "ALWAYS_THE_SAME", "WRITES_LEAK",
  "LOADS_KEEP_PAGES", "READS_UP_TO_16M", "WRITES_UP_TO_4M",
)  # fmt: skip
"""Those that take longer, and are like others."""


def run(backend: str, row: Row, folder: Path) -> None:
  """The case of a row, for a backend. Raises what it says; Misbehaved, if the backend is wrong."""
  module, _, name = row.case.partition(".")
  case: Callable[..., None] = getattr(importlib.import_module(f"tiny_runtime.conformance.test_{module}"), name)
  target = find_target(backend)
  given: dict[str, Callable[[], Any]] = {
    "target": lambda: target,
    "oracle": reference,
    "calls": lambda: Calls(target),
    "tmp_path": lambda: folder,
  }
  rest = iter(row.arguments)
  try:
    case(*(given[each]() if each in given else next(rest) for each in inspect.signature(case).parameters))
  except pytest.skip.Exception as skipped:
    pytest.fail(f"{row.case} does not look at {backend}: {skipped}")
  finally:
    memory.give_back()


def marked(row: Row) -> Any:
  return pytest.param(row, marks=[pytest.mark.nightly] if row.name in SLOW else [], id=f"{row.name}-{row.case}")


@pytest.mark.parametrize("row", [marked(row) for row in ROWS])
def test_it_is_found(row: Row, tmp_path: Path) -> None:
  with pytest.raises(Misbehaved) as caught:
    run(row.backend, row, tmp_path)
  assert row.says in str(caught.value)


CASES = {(row.right, row.case, row.arguments): row for row in ROWS}


@pytest.mark.nightly
@pytest.mark.parametrize("row", CASES.values(), ids=lambda row: f"{row.right.partition(':')[2]}-{row.case}")
def test_the_same_without_the_mistake_passes(row: Row, tmp_path: Path) -> None:
  run(row.right, row, tmp_path)


def test_every_wrong_backend_has_a_row() -> None:
  named = {row.backend for row in ROWS} | {row.right for row in ROWS}
  there = {f"wrong_backends.numbers:{name}" for name in RULES}
  for module in (memory, queues, packages):
    there |= {
      f"{module.__name__}:{name}" for name, made in vars(module).items() if name.isupper() and isinstance(made, Backend)
    }
  assert there <= named, there - named
