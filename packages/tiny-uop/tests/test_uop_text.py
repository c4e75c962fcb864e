"""The textual form: it parses back to the identical object, and text from anywhere gives an error with a place,
nothing else.
"""

import math
import os
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from uop_graphs import graphs

from tiny_uop import (
  AddrSpace,
  DType,
  KernelInfo,
  Ops,
  ParseError,
  UOp,
  dtypes,
  parse_uop,
  print_uop,
  register_arg,
)  # fmt: skip


@settings(max_examples=150)
@given(graphs())
def test_round_trip(graph: UOp) -> None:
  text = print_uop(graph)
  assert parse_uop(text) is graph
  assert print_uop(parse_uop(text)) == text
  assert text.isascii()


@pytest.mark.parametrize(
  "value", [0.0, -0.0, math.inf, -math.inf, math.nan, 1e22, 1e-300, 1, 1.0, True, (1,), (), ((),)]
)
def test_literals_that_look_alike(value: Any) -> None:
  node = UOp(Ops.SINK, arg=value)
  again = parse_uop(print_uop(node))
  assert again is node and type(again.arg) is type(value) and repr(again.arg) == repr(value)


def test_what_it_looks_like() -> None:
  x = UOp.variable("x", 0, 15)
  assert print_uop(UOp.sink(x * 4, arg=KernelInfo("k"))) == (
    "tiny-uop 1\n"
    '%0 = VARIABLE index () arg=("x", 0, 15)\n'
    "%1 = CONST index () arg=4\n"
    "%2 = MUL index (%0, %1)\n"
    '%3 = SINK void (%2) arg=KernelInfo(name="k", opts=None)\n'
  )


def test_comments_blank_lines_and_other_numbers() -> None:
  text = '\n# a comment\ntiny-uop 1\r\n\n  %70 = CONST int32 () arg=1\n   # more\n%3 = ADD int32 (%70 , %70)  tag="t"\n'
  one = UOp.const(dtypes.int32, 1)
  assert parse_uop(text) is UOp(Ops.ADD, dtypes.int32, (one, one), None, "t")


def test_deep_graphs_round_trip() -> None:
  u = UOp.variable("x", 0, 1)
  for _ in range(30_000):
    u = u + 1
  assert parse_uop(print_uop(u)) is u
  assert pickle.loads(pickle.dumps(u)) is u


@pytest.mark.parametrize(
  ("text", "line", "column", "message"),
  [
    ("", 1, 1, "no nodes"),
    ("tiny-uop 1\n", 2, 1, "no nodes"),
    ("%0 = CONST int32 ()", 1, 1, "expected the header 'tiny-uop 1'"),
    ("tiny-uop 9\n%0 = CONST int32 ()", 1, 10, "IR version 9"),
    ("tiny-uop 1\n%0 CONST", 2, 4, "expected '='"),
    ("tiny-uop 1\nfoo", 2, 1, "expected a node"),
    ("tiny-uop 1\n%0 = FOO int32 ()", 2, 6, "unknown operation FOO"),
    ("tiny-uop 1\n%0 = CONST int33 ()", 2, 12, "unknown dtype 'int33'"),
    ("tiny-uop 1\n%0 = CONST float32x99999999 ()", 2, 12, "unknown dtype"),
    ("tiny-uop 1\n%0 = CONST int32 (%1)", 2, 19, "%1 is used before"),
    ("tiny-uop 1\n%0 = CONST int32 (%0)", 2, 19, "%0 is used before"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=", 2, 25, "expected a literal, found the end"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=(1 2)", 2, 28, "expected ',' after the one item"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=(1)", 2, 27, "expected ','"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=1 2", 2, 27, "expected the end of the line"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=open", 2, 25, "unknown word 'open'"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=__import__('os')", 2, 25, "unknown word '__import__'"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=AxisType.SPIN", 2, 34, "AxisType has no member SPIN"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=AxisType.__class__", 2, 34, "AxisType has no member"),
    ("tiny-uop 1\n%0 = SINK void () arg=KernelInfo(nam=1)", 2, 34, "expected a field of KernelInfo"),
    ("tiny-uop 1\n%0 = SINK void () arg=Opt()", 2, 23, "cannot make a Opt"),
    ("tiny-uop 1\n%0 = SINK void () arg=Stage(copies=1, copies=2)", 2, 39, "not yet given"),
    ('tiny-uop 1\n%0 = SINK void () arg="\\x"', 2, 23, "expected a literal"),
    ('tiny-uop 1\n%0 = SINK void () arg="abc', 2, 23, "expected a literal"),
    ("tiny-uop 1\n%0 = CONST int32 () arg=1\n%0 = CONST int32 () arg=2", 3, 1, "%0 is defined twice"),
  ],
)  # fmt: skip
def test_errors_have_a_place(text: str, line: int, column: int, message: str) -> None:
  with pytest.raises(ParseError) as caught:
    parse_uop(text)
  assert message in str(caught.value)
  assert (caught.value.line, caught.value.column) == (line, column)
  assert str(caught.value).startswith(f"line {line}, column {column}: ")


def test_limits() -> None:
  with pytest.raises(ParseError, match="nest deeper than 64"):
    parse_uop("tiny-uop 1\n%0 = SINK void () arg=" + "(" * 100_000)
  with pytest.raises(ParseError, match="a number of 100000 characters"):
    parse_uop("tiny-uop 1\n%0 = CONST int32 () arg=" + "1" * 100_000)


@given(st.text())
def test_any_text_gives_a_parse_error_or_a_graph(text: str) -> None:
  for prefix in ("", "tiny-uop 1\n", "tiny-uop 1\n%0 = CONST int32 () arg="):
    try:
      assert isinstance(parse_uop(prefix + text), UOp)
    except ParseError:
      pass


@given(graphs(), st.integers(0, 2000), st.text(max_size=3))
def test_damaged_text(graph: UOp, place: int, patch: str) -> None:
  text = print_uop(graph)
  place %= len(text)
  try:
    assert isinstance(parse_uop(text[:place] + patch + text[place + 1 :]), UOp)
  except ParseError:
    pass


def test_buffers_made_after_parsing_are_others() -> None:
  taken = UOp.new_buffer("CPU", 4, dtypes.int8).arg[0] + 3
  parsed = parse_uop(f'tiny-uop 1\n%0 = DEVICE void () arg="CPU"\n%1 = BUFFER int8 (%0) arg=({taken}, 4)\n')
  assert all(UOp.new_buffer("CPU", 4, dtypes.int8) is not parsed for _ in range(5))


def nested(depth: int) -> Any:
  literal: Any = 1
  for _ in range(depth):
    literal = (literal,)
  return literal


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    (frozenset({1}), "frozenset cannot stand in an argument"),
    (b"bytes", "cannot stand in an argument"),
    (10**1000, "an integer of more than 1000 digits"),
    (nested(65), "nest deeper than 64"),
    (KernelInfo(name=3), "field name is 3, expected str"),  # type: ignore[arg-type]
  ],
)
def test_arguments_that_cannot_be_printed(argument: Any, message: str) -> None:
  """What would not parse back is not printed."""
  with pytest.raises(TypeError, match=message):
    print_uop(UOp(Ops.SINK, arg=argument))


@pytest.mark.parametrize("argument", [10**999, -(10**999) + 1, nested(64), KernelInfo("k" * 10_000), "\ud800", "\x00"])
def test_arguments_at_the_limits(argument: Any) -> None:
  node = UOp(Ops.SINK, arg=argument)
  assert parse_uop(print_uop(node)) is node


def test_two_classes_of_one_name() -> None:
  with pytest.raises(ValueError, match="named 'Stage' is already registered"):
    register_arg(type("Stage", (), {}))


@pytest.mark.parametrize(
  ("u", "expected"),
  [
    ((UOp.variable("x", 0, 9) * 4 + 3) // 4, "(x*4 + 3)//4"),
    ((UOp.variable("x", 0, 9) + 3) * 2 % 5, "(x + 3)*2%5"),
    (UOp.variable("x", 0, 9) * (UOp.range(3, 7) // 2), "x*(r7//2)"),
    ((UOp.variable("x", 0, 9) < 3) & (UOp.variable("x", 0, 9).ne(1)), "(x < 3) & (x != 1)"),
    (UOp.variable("x", 0, 9).cast(dtypes.float32).sin(), "sin(float32(x))"),
    ((UOp.variable("x", 0, 9) < 3).where(UOp.const(dtypes.int32, 1), 2), "where(x < 3, 1, 2)"),
  ],
)  # fmt: skip
def test_formulas(u: UOp, expected: str) -> None:
  assert u.render() == expected


def test_formulas_of_shared_nodes_stay_short() -> None:
  u = UOp.variable("x", 0, 1)
  for _ in range(200):
    u = u * u
  assert len(u.render()) < 100_000


def test_dtype_names_round_trip() -> None:
  def check(dtype: DType) -> None:
    assert dtypes.parse(dtype.name) is dtype

  for dtype in (*dtypes.all, dtypes.index, dtypes.void):
    check(dtype)
  for dtype in dtypes.all:
    check(dtype.vec(8))
    check(dtype.ptr(12, AddrSpace.LOCAL))


def test_buffers_of_a_text_from_another_process() -> None:
  ours = UOp.new_buffer("CPU", 4, dtypes.float32)
  text = print_uop(ours.reshape((2, 2)) + ours.reshape((2, 2)))
  theirs = parse_uop(text, "theirs")
  buffer = theirs.src[0].src[0]
  assert buffer is not ours and buffer.replace(arg=(ours.arg[0], 4)) is ours and theirs.src[0] is theirs.src[1]
  assert parse_uop(text, "theirs") is theirs and parse_uop(text, "others'") is not theirs
  assert parse_uop(text).src[0].src[0] is ours


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_name_of_its_own() -> None:
  """What it makes has the ids that the parent gives next."""
  pickle.dumps(UOp.new_buffer("CPU", 4, dtypes.float32))  # the parent has a name by now
  code, made = os.pipe()
  if (child := os.fork()) == 0:
    os.write(made, pickle.dumps(UOp.new_buffer("CPU", 4, dtypes.float32)))
    os._exit(0)
  os.close(made)
  os.waitpid(child, 0)
  ours = UOp.new_buffer("CPU", 4, dtypes.float32)
  with open(code, "rb") as sent:
    assert pickle.load(sent) is not ours


def test_repr_of_a_bound_size_is_a_formula_and_its_value() -> None:
  n, m = UOp.variable("n", 1, 9).bind(4), UOp.variable("m", 0, 9).bind(2)
  assert [repr(size) for size in (n, n * 3, n // 3 + m)] == ["n=4", "n*3=12", "n//3 + m=3"]
  # without a value, longer than is read, and no sizes: the node
  free, long = UOp.variable("k", 1, 9), sum((n * (m + i) for i in range(64)), n)
  loop = UOp.range(n, 0)
  assert [repr(u).split(" ")[0] for u in (free, n + free, long, loop, loop + n)] == [
    "<VARIABLE", "<ADD", "<ADD", "<RANGE", "<ADD",
  ]  # fmt: skip
