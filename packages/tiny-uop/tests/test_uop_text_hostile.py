"""Text from anywhere: a graph or a ParseError with line and column comes out, in time that is linear in its length, and
nothing in it is ever run.
"""

from __future__ import annotations

import builtins
import os
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uop_graphs import graphs

from tiny_uop import KernelInfo, Ops, ParseError, SpecError, UOp, dtypes, new_buffer_id, parse_uop, print_uop, spec
from tiny_uop.text.parse import MAX_COLLISIONS
from tiny_uop.text.readable import readable

HEADER = "tiny-uop 1\n"
ARG = HEADER + "%0 = SINK void () arg="


def outcome(text: str) -> ParseError | None:
  """What is wrong with a text; None for one that is a graph, which then prints as a text that parses back to it."""
  try:
    graph = parse_uop(text)
  except ParseError as error:
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines) and 1 <= error.column <= len(lines[error.line - 1]) + 1
    assert error.reason and len(error.reason) < 1000 and str(error).isprintable()
    return error
  assert parse_uop(print_uop(graph)) is graph
  return None


# *** anything ***

# pieces that the language is made of, and that look like them
PIECES = st.sampled_from([
  "%0", "%1", "%00", "%99", "%", " = ", "=", "ADD", "CONST", "SINK", "__class__", "int32", "index", "void",
  "float32x4", "ptr<int8, 4, global>", "ptr<", "(", ")", "()", ", ", ",", " ", "\t", "\n", "\r\n", "\r", "#", "arg=",
  "tag=", "1", "-1", "007", "1.5", "1e5", "1e999", "-", ".", "inf", "-inf", "nan", "True", "None", '"', '"a"', "\\",
  '"\\u0041"', '"\\ud800"', "@", "@int8", "@ptr<index, 1, local>", "AxisType.LOOP", "AxisType.", "Ops.ADD",
  "KernelInfo(", 'name="k"', "Stage()", "opts=(", "tiny-uop 1\n", "\x00", "\x0b", "\u2028", "\u00a0", "\uff11",
  "\u0661", "\u0421ONST", "\ufeff", "\U0001f600", "é",
])  # fmt: skip


@settings(max_examples=200)
@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["", HEADER, ARG, HEADER + "%0 = "]))
@example("", "")
def test_pieces_of_the_language(text: str, prefix: str) -> None:
  outcome(prefix + text)


@settings(max_examples=150)
@given(graphs(6), st.data())
def test_mutations_of_valid_text(graph: UOp, data: st.DataObject) -> None:
  text = print_uop(graph)
  for _ in range(data.draw(st.integers(1, 4))):
    start = data.draw(st.integers(0, len(text)))
    stop = min(len(text), start + data.draw(st.integers(0, 6)))
    patch = data.draw(st.one_of(PIECES, st.text(max_size=3), st.just(text[start : start + 30])))
    text = text[:start] + patch + text[stop:]
  outcome(text)


@settings(max_examples=100)
@given(graphs(6), st.integers(0, 5000))
def test_every_beginning_of_a_text(graph: UOp, length: int) -> None:
  text = print_uop(graph)
  outcome(text[: length % len(text)])


@settings(max_examples=100)
@given(graphs(8), st.randoms())
def test_lines_in_another_order(graph: UOp, random: object) -> None:
  lines = print_uop(graph).splitlines()
  shuffled = [lines[0], *sorted(lines[1:], key=lambda _: random.random())]  # type: ignore[attr-defined]
  error = outcome("\n".join(shuffled))
  assert error is None or "is used before" in error.reason


# *** one thing at a time ***


@pytest.mark.parametrize(
  ("body", "reason"),
  [
    ("__import__('os').system('touch /tmp/x')", "unknown word '__import__'"),
    ("eval", "unknown word 'eval'"),
    ("KernelInfo.__init__", "expected '('"),
    ("KernelInfo(__class__=1)", "expected a field of KernelInfo"),
    ("AxisType.__members__", "AxisType has no member"),
    ("AxisType(1)", "expected '.'"),
    ("KernelInfo(name=1)", "field name is 1, expected str"),
    ("KernelInfo(opts=(1,))", "field opts is (1,), expected tuple[Opt, ...] | None"),
    ("Stage(copies=True)", "field copies is True, expected int"),
    ("Opt(op=AxisType.LOOP)", "field op is AxisType.LOOP, expected OptOps"),
    ("007", "expected the end of the line"),
    ("1e999", "beyond the range of float64"),
    ("-1" + "0" * 400 + ".5", "beyond the range of float64"),
    ("9" * 1002, "a number of 1002 characters; at most 1000"),
    ("-nan", "expected a literal"),
    ("+1", "expected a literal"),
    ("0x10", "expected the end of the line"),
    ("1_000", "expected the end of the line"),
    ("'a'", "expected a literal"),
    ('"\t"', "expected a literal"),
    ('"\\x41"', "expected a literal"),
    ("[1]", "expected a literal"),
    ("{}", "expected a literal"),
    ("(1)", "expected ','"),
    ("(" * 65, "nest deeper than 64"),
    ("KernelInfo(name=" * 65, "nest deeper than 64"),
    ("@ptr<void, 1, global>", "unknown dtype"),
    ("@ptr<int8, 1, shared>", "unknown dtype"),
    ("@float32x0", "unknown dtype"),
    ("@float32x65537", "unknown dtype"),
    ("@float32x" + "9" * 5000, "unknown dtype"),
    ("\uff11", "expected a literal"),
    ("\x00", "expected a literal"),
    ("1\u2028", "expected the end of the line"),
    ("1\r2", "expected the end of the line"),
  ],
)  # fmt: skip
def test_literals_that_are_none(body: str, reason: str) -> None:
  error = outcome(ARG + body)
  assert error is not None and reason in error.reason and error.line == 2 and error.column >= 23


@pytest.mark.parametrize(
  ("lines", "line", "column", "reason"),
  [
    ("%0 = CONST int32 () arg=1\n%1 = ADD int32 (%0, %1)", 3, 21, "%1 is used before"),
    ("%0 = ADD int32 (%1, %1)\n%1 = CONST int32 () arg=1", 2, 17, "%1 is used before"),
    ("%0 = CONST int32 () arg=1\n%0 = CONST int32 () arg=1", 3, 1, "%0 is defined twice"),
    ("%0 = CONST int32 () arg=1\n  %0 = CONST int32 () arg=1", 3, 3, "%0 is defined twice"),
    ("%00 = CONST int32 () arg=1", 2, 1, "expected a node"),
    ("%-1 = CONST int32 () arg=1", 2, 1, "expected a node"),
    ("%9999999999999 = CONST int32 () arg=1", 2, 1, "expected a node"),
    ("%0 = const int32 () arg=1", 2, 6, "unknown operation const"),
    ("%0 = \u0421ONST int32 () arg=1", 2, 6, "unknown operation"),
    ("%0 = CONST int32 (,) arg=1", 2, 19, "expected a source"),
    ("%0 = CONST int32 () arg=1 arg=2", 2, 27, "expected the end"),
    ("%0 = CONST int32 () tag=1 arg=2", 2, 27, "expected the end"),
    ("%0 = CONST int32 () # why", 2, 21, "expected the end"),
    ("tiny-uop 1", 2, 1, "expected a node"),
  ],
)  # fmt: skip
def test_lines_that_are_no_nodes(lines: str, line: int, column: int, reason: str) -> None:
  error = outcome(HEADER + lines)
  assert error is not None and (error.line, error.column) == (line, column) and reason in error.reason


@pytest.mark.parametrize(
  ("header", "reason"),
  [
    ("tiny-uop 2", "IR version 2"),
    ("tiny-uop 0", "IR version 0"),
    ("tiny-uop " + "9" * 9999, "IR version 9"),
    ("tiny-uop", "expected the header"),
    ("tiny-uop one", "expected the header"),
    ("tiny-uop 1 2", "expected the header"),
    ("tiny-uop\u00a01", "expected the header"),
    ("\ufefftiny-uop 1", "expected the header"),
    ("TINY-UOP 1", "expected the header"),
    ("\x7fELF", "expected the header"),
  ],
)
def test_headers(header: str, reason: str) -> None:
  error = outcome(header + "\n%0 = SINK void ()\n")
  assert error is not None and error.line == 1 and reason in error.reason


def test_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
  def never(*_: object, **__: object) -> None:
    raise AssertionError("the parser ran something")

  texts = [
    f"{ARG}{body}"
    for body in ("__import__('os')", "eval('1')", "().__class__", "KernelInfo(name=exec('1'))", "print(1)")
  ]
  with monkeypatch.context() as patched:
    for module, name in ((builtins, "eval"), (builtins, "exec"), (builtins, "compile"), (os, "system")):
      patched.setattr(module, name, never)
    errors = [outcome(text) for text in texts]
  assert all(error is not None for error in errors)


def test_ids_of_buffers_stay_small() -> None:
  device = '%0 = DEVICE void () arg="CPU"\n%1 = BUFFER int8 (%0) arg=('
  assert outcome(f"{HEADER}{device}{'9' * 900}, 1)") is None
  assert new_buffer_id() < 1 << 60


# *** size ***


def seconds(text: str) -> tuple[float, ParseError | None]:
  start = time.process_time()  # a busy machine does not disturb
  try:
    parse_uop(text)
    error = None
  except ParseError as found:
    error = found
  return time.process_time() - start, error


LONG = {
  "digits": "9" * 2_000_000, "fraction": "1." + "9" * 2_000_000, "string": '"' + "a" * 2_000_000,
  "word": "a" * 2_000_000,
  "escapes": '"' + "\\n" * 1_000_000 + "\\x", "spaces": " " * 2_000_000 + ")", "parentheses": "(" * 1_000_000,
  "commas": "(" + "1," * 200_000 + "]", "types": "@" + "a" * 1_000_000, "members": "AxisType." + "A" * 1_000_000,
  "minus": "-" * 1_000_000, "fields": "KernelInfo(" + 'name="a",' * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_very_long_lines(name: str) -> None:
  took, error = seconds(ARG + LONG[name])
  assert error is not None and len(str(error)) < 1000 and took < 5


def test_sharing_costs_nothing() -> None:
  doubled = [HEADER + '%0 = VARIABLE index () arg=("x", 0, 1)']
  doubled += [f"%{i} = ADD index (%{i - 1}, %{i - 1})" for i in range(1, 2000)]
  graph = parse_uop("\n".join(doubled))  # 2**2000 nodes, written out
  assert len(graph.toposort) == 2000 and len(graph.render()) < 100_000 and len(readable(graph)) < 200_000
  spec.check(graph, "tensor")


def test_time_is_linear() -> None:
  def text(count: int) -> str:
    lines = [f"%{i} = ADD int32 (%{i - 1}, %{i // 2})" for i in range(1, count)]
    return "\n".join(["tiny-uop 1", "%0 = CONST int32 () arg=1", *lines])

  small, large = min(seconds(text(5_000))[0] for _ in range(3)), seconds(text(100_000))[0]
  assert large < 100 * small  # 20 times the length


@pytest.mark.slow
def test_hundreds_of_thousands_of_nodes() -> None:
  lines = [f"%{i} = ADD index (%{i - 1}, %{i - 1})" for i in range(1, 300_000)]
  took, error = seconds("\n".join(["tiny-uop 1", '%0 = VARIABLE index () arg=("x", 0, 1)', *lines]))
  assert error is None and took < 40


def test_integers_with_equal_hashes_are_refused() -> None:
  modulus = 2**61 - 1  # Python's integers hash to their remainder
  lines = [f"%{i} = CONST int64 () arg={i * modulus}" for i in range(MAX_COLLISIONS + 10)]
  took, error = seconds("\n".join(["tiny-uop 1", *lines]))
  assert error is not None and "made to be slow" in error.reason and error.line > MAX_COLLISIONS and took < 60


# *** well-formed but wrong: `check` says so ***


@settings(max_examples=150)
@given(graphs(8))
def test_checking_any_graph(graph: UOp) -> None:
  for level in ("tensor", "schedule", "kernel", "program"):
    try:
      spec.check(graph, level)
    except SpecError as error:
      assert error.node in set(graph.toposort) and str(error)
  try:
    spec.check_nodes(graph)
  except SpecError:
    pass
  assert repr(graph) and graph.render() and len(graph.key) == 32


@pytest.mark.parametrize("op", Ops)
def test_operations_with_any_number_of_sources(op: Ops) -> None:
  one = UOp.const(dtypes.int32, 1)
  for count in (0, 1, 2, 3, 5):
    for dtype in (dtypes.int32, dtypes.void, dtypes.index, dtypes.float32.ptr(4)):
      for arg in (None, 3, "x", (), (1, 2), ("x", 1, 0), KernelInfo(), -(10**40)):
        node = parse_uop(print_uop(UOp(op, dtype, (one,) * count, arg)))
        for level in ("tensor", "schedule", "kernel", "program"):
          try:
            spec.check(node, level)
          except SpecError:
            continue
          assert node.key and repr((node._shape, node._device, node.ranges, node.variables))
