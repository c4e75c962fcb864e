"""The conformance kit finds every backend that is wrong, and says what is the matter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, STDOUT
from typing import Any

import pytest

# Runs the kit for each line of its input, all in one process: starting one takes longer than the cases.
DRIVER = """
import json, sys, pytest
for line in sys.stdin:
  backend, files, keyword, report = json.loads(line)
  arguments = ["-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider", "--pyargs"]
  arguments += [f"tiny_runtime.conformance.test_{file}" for file in files.split()]
  pytest.main([*arguments, "-k", keyword, "--backend", backend, "--report", report])
  print("ENDED", flush=True)
"""


@dataclass(frozen=True)
class Wrong:
  """A backend, the files of the kit that find it (and of their cases those with a keyword), and what one case says."""

  backend: str
  files: str
  keyword: str
  case: str
  says: tuple[str, ...]


def compiler(name: str, files: str, keyword: str, case: str, *says: str) -> Wrong:
  return Wrong(f"wrong_backends.compilers:{name}", files, keyword, case, says)


def device(name: str, files: str, keyword: str, case: str, *says: str) -> Wrong:
  return Wrong(f"wrong_backends.devices:{name}", files, keyword, case, says)


def graphs(name: str, keyword: str, case: str, *says: str) -> Wrong:
  return Wrong(f"wrong_backends.graphs:{name}", "level5_graphs", keyword, case, says)


OPS, PROGRAMS, GROUPS = "level2_ops", "level3_programs", "level3_workgroups"
MEMORY, LIFE, ORDER, CLAIMS = "level1_memory", "level4_life_cycle", "level4_order", "level5_capabilities"
PACKAGE, PEERS, BETWEEN = "level0_package", "level5_peers", "level5_capabilities"

WRONG = [
  compiler("RECIPROCAL", OPS, "FDIV", "test_op[FDIV-float32]", "no reciprocal estimate", "for 1.0"),
  compiler(
    "TOWARD_ZERO", OPS, "rounding", "test_rounding_to_nearest_even[float32-float16]", "one unit in the last place off"
  ),
  compiler("MAX_NAN", OPS, "MAX", "test_op[MAX-float32]", "differ in NaN only", "expected nan, for 0.0, nan", "fmax"),
  compiler("NEGATION", OPS, "NEG", "test_op[NEG-float32]", "sign of zero only", "got 0.0, expected -0.0, for 0.0"),
  compiler("SUBNORMALS", OPS, "MUL", "test_op[MUL-float32]", "subnormal results are flushed to zero"),
  compiler("DIVISION", OPS, "FLOORDIV", "test_op[FLOORDIV-int32]", "the quotient rounds toward minus infinity"),
  compiler("TOO_SHORT", PROGRAMS, "sizes", "test_sizes[65]", "only the last 1 differ: bounds", "for r0: p0[r0] ="),
  compiler(
    "TOO_FAR", PROGRAMS, "sizes", "test_sizes[65]", "bytes outside of its buffers", "behind the buffer of PARAM 0"
  ),
  compiler("NO_BARRIERS", GROUPS, "", "test_reverse_in_a_group[3-4]", "look at:  ", "barriers", "BARRIER void"),
  compiler("NO_BARRIERS", GROUPS, "loop", "test_barriers_in_a_loop", "barriers, and that all threads"),
  compiler("NOT_SHARED", GROUPS, "tree", "test_sum_as_a_tree", "share one array in local memory"),
  compiler("COUNTING", PACKAGE, "twice", "test_compiling_twice_gives_the_same", "counters in names"),
  compiler("HASH_ORDER", PACKAGE, "deterministic", "test_compile_is_deterministic", "PYTHONHASHSEED"),
  compiler("UNPICKLABLE", PACKAGE, "pickles", "test_compiler_pickles", "cannot pickle '_thread.lock' object"),
  compiler("SWALLOWING", PACKAGE, "error", "test_what_cannot_be_compiled_is_a_compile_error", "took an illegal kernel"),
  compiler("NO_HALF", OPS, "ADD", "test_op[ADD-float16]", "half is not supported", "take back the claim (a type"),
  device(
    "OFFSETS",
    PROGRAMS,
    "offset",
    "test_buffers_at_an_offset[(0, 20)]",
    "the results are right, but 5 elements too late",
  ),
  device("OFFSETS", PROGRAMS, "offset", "test_buffers_at_an_offset[(8, 0)]", "outside", "adds the byte offset"),
  device("INTEGERS", PROGRAMS, "variables", "test_many_variables", "in the order of Binary.variables", "'e': 1"),
  device("INTEGERS_32", PROGRAMS, "beyond", "test_variables_beyond_32_bits[2147483648]", "may need 64 bits"),
  device("WORDS", MEMORY, "63", "test_round_trip[63]", "bytes 60 to 62 of 63 are wrong", "the last 3 bytes are lost"),
  device("READS_START", MEMORY, "parts", "test_parts", "at byte 1 of 1000", "read: offset and data.nbytes count bytes"),
  device("OVERLAP", MEMORY, "overlap", "test_allocations_do_not_overlap", "alloc gave out bytes that are in use"),
  device("LEAK", LIFE, "filled", "test_memory_can_be_filled_again_and_again", "freed 8 times, there is no room"),
  device("KEEPS", LIFE, "kept", "test_nothing_is_kept", "every 50 rounds of load, alloc, launch and free leave"),
  device("NO_OUT_OF_MEMORY", LIFE, "out_of", "test_out_of_memory_then_continue[2]", "an error is swallowed"),
  device(
    "MEMORY_ERROR", LIFE, "out_of", "test_out_of_memory_then_continue[2]", "expected: OutOfMemory", "MemoryError:"
  ),
  device("THREAD", LIFE, "threads", "test_calls_from_several_threads", "had not opened the device: invalid context"),
  device("NO_TIME", LIFE, "time", "test_launch_returns_its_time", "got:      None", "returns the seconds"),
  device("CLOSE", LIFE, "gives", "test_close_gives_memory_back", "8 times, and now there is no room"),
  device("READ_EARLY", ORDER, "read_waits", "test_read_waits_for_launches", "what it gives is stale"),
  device(
    "WRITE_EARLY", ORDER, "write_waits", "test_write_waits_for_launches", "a launch saw what was written after it"
  ),
  device(
    "FREE_EARLY", ORDER, "free_waits", "test_free_waits_for_launches", "lost its input to a free that came after it"
  ),
  device("BACKWARDS", ORDER, "in_order", "test_launches_happen_in_order", "launches run in the order"),
  device("ARGUMENTS", ORDER, "arguments", "test_arguments_belong_to_their_launch", "of another launch are used"),
  device("MAPS_COPY", CLAIMS, "mapped", "test_host_mapped", "view is the memory itself, not a copy of it"),
  device("ADOPTS_COPY", CLAIMS, "import", "test_host_import", "adopt gives a handle of the memory itself"),
  device(
    "PEER_EARLY", PEERS, "source", "test_it_comes_after_launches_of_the_source", "the source held before a launch"
  ),
  device(
    "PEER_LATE", PEERS, "changes", "test_what_changes_the_source_comes_after_it[launch]", "changed what was copied"
  ),
  device("PEER_AT_ONCE", PEERS, "target", "test_it_comes_after_launches_of_the_target", "overwrote what was copied"),
  device(
    "PEER_START", PEERS, "contents", "test_contents[1-3-5]", "from byte 5 of one device to byte 3", "both offsets"
  ),
  device("PEER_FORWARDS", PEERS, "within", "test_within_one_device[90-1-0]", "from byte 0 of a memory", "memmove"),
  device("PEER_FORGETS", PEERS, "again", "test_what_reaches_is_asked_again", "reaches said True, and now False"),
  graphs("ITSELF", "every", "test_it_comes_after_launches_of_every_device", "before an earlier launch"),
  graphs("GO_ON", "later", "test_what_comes_later_on_every_device_waits_for_it", "did not see what it wrote there"),
  graphs("OWN", "other", "test_other_memories_and_places", "copies of parts", "memories of every device"),
  graphs("COPIES_FIRST", "fro", "test_a_value_goes_to_and_fro", "in each of 1 runs", "over one memory, run in order"),
  device("FORK", BETWEEN, "fork", "test_survives_fork", "in a forked child: OSError: no context", "take the claim"),
  device("FORK_SHARES", BETWEEN, "fork", "test_survives_fork", "memory of the parent after a child wrote to its own"),
  device("STAGING", BETWEEN, "reentrant", "test_reentrant", "what a method notes in the device between its steps"),
  device("NOT_TWICE", BETWEEN, "reentrant", "test_reentrant", "['in RefDevice.alloc", "RuntimeError: one at a time"),
  device("GRAPHS", CLAIMS, "claimed", "test_what_is_claimed_is_there[graphs]", "has no make_graph, run_graph"),
  device("ARCH", CLAIMS, "record", "test_record_is_consistent", "expected: python", "got:      snake"),
  device("OLD", PACKAGE, "api", "test_api_version", "it is written for version 0.3 of the contract"),
  device("ANY_INDEX", PACKAGE, "beyond", "test_open_beyond_the_last_device_is_unavailable", "expected: Unavailable"),
]
RIGHT = (
  Wrong(
    "wrong_backends.devices:QUEUED",
    f"{MEMORY} {LIFE} {ORDER} {PEERS}",
    "not memory_can and not close and not beyond and not any_size and not any_place",
    "",
    (),
  ),
  Wrong("wrong_backends.graphs:SEVERAL", "level5_graphs", "", "", ()),
)


Cases = dict[str, dict[str, Any]]
Kit = Callable[[Wrong], Cases]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
  """What the kit reports about a backend, case by case."""
  folder = tmp_path_factory.mktemp("reports")
  path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
  env = {**os.environ, "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
  command = [sys.executable, "-c", DRIVER]
  with subprocess.Popen(command, cwd=folder, env=env, text=True, stdin=PIPE, stdout=PIPE, stderr=STDOUT) as driver:
    assert driver.stdin is not None and driver.stdout is not None
    stdin, stdout = driver.stdin, driver.stdout

    def run(wrong: Wrong) -> Cases:
      report = folder / "report.json"
      report.unlink(missing_ok=True)
      stdin.write(json.dumps([wrong.backend, wrong.files, wrong.keyword, str(report)]) + "\n")
      stdin.flush()
      said = "".join(iter(stdout.readline, "ENDED\n"))
      assert report.exists(), said
      return {case["case"].partition("::")[2]: case for case in json.loads(report.read_text())["cases"]}

    yield run
    stdin.close()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda w: w.backend.partition(":")[2] + "-" + w.case.partition("[")[0])
def test_it_is_found(kit: Kit, wrong: Wrong) -> None:
  case = kit(wrong)[wrong.case]
  reason = case.get("reason", "")
  assert case["outcome"] == "failed", reason
  assert reason.startswith(f"level {case['level']} (")
  assert f"{wrong.case}, backend {wrong.backend.partition(':')[2]}:" in reason
  assert [part for part in wrong.says if part not in reason] == [], reason


def test_one_that_defers_all_work_is_right(kit: Kit) -> None:
  """So it is what the classes derived from it forget that is found."""
  for right, least in zip(RIGHT, (30, 10)):
    cases = kit(right)
    not_passed = {name: case["reason"] for name, case in cases.items() if case["outcome"] != "passed"}
    claims = {
      "test_times_of_calls": "graph_times",
      "test_calls_that_change_together": "graph_changes",
      "test_stream": "stream",
    }
    not_claimed = {case: f"{claim} is not claimed" for case, claim in claims.items()}
    assert not_passed.items() <= not_claimed.items()
    assert len(cases) >= least
