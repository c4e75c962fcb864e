"""The spec: legal graphs pass at their level, each kind of illegal node is refused with its name, its level and what
is expected.
"""

from dataclasses import fields, replace
from typing import Any

import pytest

from tiny_uop import (
  ASYNC,
  STREAMING,
  AddrSpace,
  AxisType,
  Context,
  CustomGradient,
  KernelInfo,
  NativeCode,
  Ops,
  ProgramInfo,
  SpecError,
  UOp,
  dtypes,
  native_of,
  parse_uop,
  print_uop,
  read_params,
  spec,
  written_params,
)  # fmt: skip

f32, i32, idx = dtypes.float32, dtypes.int32, dtypes.index
out, inp = UOp.param(0, f32.ptr(16)), UOp.param(1, f32.ptr(64))
near = UOp.alloc(0, f32.ptr(16, AddrSpace.LOCAL))
i, r = UOp.range(16, 0), UOp.range(4, 1, AxisType.REDUCE)
buffer = UOp.new_buffer("CPU", 6, f32)
device = buffer.src[0]
n = UOp.variable("n", 1, 9)
number, value = UOp.const(i32, 3), UOp.const(f32, 1.0)
native = NativeCode("object", "this", "\x00\xff code", "f", (1,), (1,), (0,))


def kernel(effect: UOp) -> UOp:
  return UOp.sink(effect, arg=KernelInfo("k"))


def body() -> UOp:
  loaded = inp.index(i * 4 + r, r < 3).load(UOp.const(f32, 0))
  return kernel(out.index(i).store(loaded.reduce(Ops.ADD, r).exp2()).end(i))


def tensor() -> UOp:
  t = buffer.reshape((2, 3)).permute((1, 0)).pad(((1, 0), (0, 2))).shrink(((0, 2), (1, 3))).flip((0,))
  t = (t + 1.0).reduce_axes(Ops.ADD, (1,)).expand((2, 5)).contiguous().detach().copy_to("CPU:1")
  symbolic = UOp.new_buffer("CPU", 30, f32).reshape((30,)).shrink(((0, n),)).reshape((n, 1)).expand((n, 4))
  target = UOp.new_buffer("CPU", 10, f32)
  return UOp.sink(target.after(target.store(t.reshape((10,)))), symbolic, (t < 0).where(t, 0.0).bitcast(dtypes.int16))


def custom() -> UOp:
  """A value of a given kernel, one with a gradient of its own, and one that comes later."""
  called = UOp(Ops.CALL, f32, (body(), device, UOp.new_buffer("CPU", 64, f32)), 0)
  own = UOp(Ops.CUSTOM_GRADIENT, f32, (called, UOp.sink(called, called)), CustomGradient("mine", 0, 1))
  target = UOp.new_buffer("CPU", 16, f32)
  return UOp.sink(target.assign(own.later_than(buffer, n)))


def schedule() -> UOp:
  copy = UOp(Ops.COPY, f32, (UOp.param(0, f32.ptr(6)), UOp.param(1, f32.ptr(6))))
  view = UOp(Ops.BUFFER_VIEW, f32, (buffer,), (8, 2))
  calls = (
    UOp(Ops.CALL, src=(body(), buffer, view, n.bind(3))),
    UOp(Ops.CALL, src=(copy, UOp.new_buffer("CPU", 6, f32), buffer)),
  )
  return UOp(Ops.LINEAR, src=calls)


def program() -> UOp:
  loop = UOp.range(UOp.const(i32, 16), 0, dtype=i32)
  address = inp.index(loop)
  load = address.load(dtype=f32.vec(4))
  store = out.index(loop).store(load)
  return UOp(Ops.LINEAR, src=(out, inp, loop.src[0], loop, address, load, store.src[0], store, store.end(loop)))


@pytest.mark.parametrize(
  ("graph", "level"), [(body(), "kernel"), (tensor(), "tensor"), (schedule(), "schedule"), (program(), "program")]
)
def test_legal(graph: UOp, level: spec.Level) -> None:
  spec.check(graph, level)
  spec.check(parse_uop(print_uop(graph)), level)
  spec.check_nodes(graph)


def test_a_kernel_that_is_a_program_of_a_device() -> None:
  made = kernel(UOp(Ops.NATIVE, dtypes.void, (inp, out), replace(native, written=(1,))))
  spec.check(made, "kernel")
  assert parse_uop(print_uop(made)) is made and native_of(made) is made.src[0]
  assert written_params(made) == {0} and read_params(made) == {1}
  assert native.content == b"\x00\xff code"


def test_programs_that_differ_have_other_keys() -> None:
  """Keys of caches are made of texts of arguments; that of a program is short."""
  other: dict[str, Any] = {
    "code": "\x00\xfe code",
    "source": "-",
    "ops": 1,
    "groups": (2,),
    "threads": (2,),
    "written": (1,),
  }
  other |= dict.fromkeys(("form", "arch", "entry"), "other")
  made = [native, *[replace(native, **{name: value}) for name, value in other.items()]]
  assert len({UOp(Ops.NATIVE, arg=arg).key for arg in made}) == len(fields(native)) + 1
  assert len(repr(replace(native, code="x" * 10**5))) < 120


def test_a_whole_program() -> None:
  info = ProgramInfo("k", "llvm", (), ())
  made = UOp(
    Ops.PROGRAM, src=(body(), program(), UOp(Ops.SOURCE, arg="define"), UOp.group(number), UOp.group(number)), arg=info
  )
  spec.check(made, "program")
  broken = made.replace(src=(body(), UOp(Ops.LINEAR, src=program().src[::-1]), UOp(Ops.SOURCE, arg="define")))
  with pytest.raises(SpecError, match="before it"):
    spec.check(broken, "program")


@pytest.mark.parametrize(
  ("node", "expected"),
  [
    (UOp(Ops.ADD, f32, (value, number)), "two sources of its dtype"),
    (UOp(Ops.ADD, f32, (value,)), "two sources of its dtype"),
    (UOp(Ops.EXP2, i32, (number,)), "one float source"),
    (UOp(Ops.FDIV, i32, (number, number)), "two float sources"),
    (UOp(Ops.FLOORDIV, f32, (value, value)), "two integer sources"),
    (UOp(Ops.AND, f32, (value, value)), "integer or bool"),
    (UOp(Ops.CMPLT, i32, (number, number)), "dtype bool"),
    (UOp(Ops.WHERE, i32, (number, number, number)), "a bool and two sources"),
    (UOp(Ops.CAST, f32.vec(4), (number,)), "as many lanes"),
    (UOp(Ops.BITCAST, dtypes.float64, (number,)), "same item size"),
    (UOp(Ops.THREEFRY, i32, (number, number)), "uint64"),
    (UOp(Ops.CONST, dtypes.int8, (), 300), "rounded to its dtype"),
    (UOp(Ops.CONST, f32, (), 1), "rounded to its dtype"),
    (UOp(Ops.CONST, f32, (), "1"), "rounded to its dtype"),
    (UOp(Ops.CONST, f32, (), 0.1), "rounded to its dtype"),
    (UOp(Ops.CONST, f32.vec(2), (), (1.0,)), "rounded to its dtype"),
    (UOp(Ops.VARIABLE, idx, (), ("n", 3, 2)), "min <= max"),
    (UOp(Ops.VARIABLE, idx, (), "n"), "min <= max"),
    (UOp(Ops.RANGE, idx, (UOp.const(idx, 4),), 3), "(id, AxisType)"),
    (UOp(Ops.RANGE, idx, (number,), (3, AxisType.LOOP)), "extent of its integer dtype"),
    (UOp(Ops.PARAM, f32, (), 0), "GLOBAL pointer"),
    (UOp(Ops.PARAM, f32.ptr(4, AddrSpace.LOCAL), (), 0), "GLOBAL pointer"),
    (UOp(Ops.ALLOC, f32.ptr(4), (), 0), "LOCAL or REG pointer"),
    (UOp(Ops.INDEX, f32.ptr(16), (out, value)), "one integer offset"),
    (out.index(UOp.const(idx.vec(2), (0, 2))), "one integer offset"),
    (UOp(Ops.INDEX, f32.ptr(16), (out, i, i)), "a bool gate"),
    (out.index(i).index(i), "a PARAM or ALLOC of its dtype"),
    (out.index(i).after(out.index(i).store(1.0)).index(i), "a PARAM or ALLOC of its dtype"),
    (UOp(Ops.LOAD, f32, (out,)), "an INDEX"),
    (UOp(Ops.LOAD, i32, (out.index(i),)), "of its element type"),
    (UOp(Ops.LOAD, f32, (out.index(i), number)), "an alternative of its dtype"),
    (UOp(Ops.STORE, dtypes.void, (out.index(i), number)), "a value of its element type"),
    (UOp(Ops.STORE, f32, (out.index(i), value)), "an INDEX and a value"),
    (UOp(Ops.STORE, dtypes.void, (out.index(i), value), ASYNC), "LOAD goes to LOCAL memory"),
    (UOp(Ops.STORE, dtypes.void, (near.index(i), value + value), ASYNC), "LOAD goes to LOCAL memory"),
    (UOp(Ops.STORE, dtypes.void, (near.index(i), value), "soon"), "arg None, or ASYNC"),
    (out.index(i).accumulate(Ops.XOR, value), "an Accumulate with an operation of that type"),
    (out.index(i).accumulate(Ops.SUB, value), "an Accumulate with an operation of that type"),
    (UOp(Ops.BARRIER, dtypes.void, (i,), -1), "a number of groups"),
    (UOp(Ops.REDUCE, f32, (value, i), (Ops.SIN, ())), "ADD, MUL or MAX"),
    (UOp(Ops.REDUCE, f32, (value,), (Ops.ADD, (0,))), "RANGEs"),
    (UOp(Ops.END, dtypes.void, (value, i)), "an effect and RANGEs"),
    (UOp(Ops.STAGE, f32, (value, i), None), "a Stage"),
    (UOp(Ops.NATIVE, dtypes.void, (out, inp), replace(native, written=(0, 2))), "NativeCode that writes"),
    (UOp(Ops.NATIVE, dtypes.void, (out, out), native), "PARAMs, each once"),
    (UOp(Ops.NATIVE, dtypes.void, (out, i), native), "PARAMs, each once"),
    (UOp(Ops.EXTRACT, f32, (value.broadcast(4),), (4,)), "lanes of it"),
    (UOp(Ops.VECTORIZE, f32.vec(2), (value, number)), "scalars or vectors, which together have its lanes"),
    (UOp(Ops.CONTIGUOUS, f32, (value,)), "no CONTIGUOUS here: it belongs to the levels tensor"),
    (UOp(Ops.BUFFER, f32, (), (1, 2)), "no BUFFER here"),
  ],
)  # fmt: skip
def test_illegal_at_the_kernel_level(node: UOp, expected: str) -> None:
  with pytest.raises(SpecError) as caught:
    spec.check(kernel(UOp.group(node)), "kernel")
  assert caught.value.node is node and caught.value.level == "kernel"
  assert expected in caught.value.expected
  assert str(caught.value).startswith(f"illegal at the kernel level: {node.op.name} {node.dtype} (")


@pytest.mark.parametrize(
  ("node", "expected"),
  [
    (UOp(Ops.RESHAPE, f32, (buffer,), (4,)), "as many elements"),
    (UOp(Ops.RESHAPE, f32, (buffer,), (None, 3)), "as many elements"),
    (UOp(Ops.EXPAND, f32, (buffer,), (7,)), "differs where its size is 1"),
    (UOp(Ops.PERMUTE, f32, (buffer,), (1,)), "an order of its axes"),
    (UOp(Ops.PAD, f32, (buffer,), (1,)), "(before, after) per axis"),
    (UOp(Ops.PAD, f32, (buffer,), (-1, 0)), "(before, after) per axis"),
    (UOp(Ops.SHRINK, f32, (buffer,), (2, 7)), "inside it"),
    (UOp(Ops.FLIP, f32, (buffer,), (1,)), "some of its axes"),
    (UOp(Ops.REDUCE, f32, (buffer,), (Ops.ADD, (1,))), "ascending axes"),
    (UOp(Ops.ADD, f32, (buffer, UOp.new_buffer("CPU", 5, f32))), "all of one shape"),
    (UOp(Ops.COPY, f32, (buffer, buffer)), "a DEVICE"),
    (UOp(Ops.STORE, dtypes.void, (buffer, number)), "of its dtype and shape"),
    (UOp(Ops.STORE, dtypes.void, (buffer + 1.0, buffer)), "a view of a BUFFER"),
    (UOp(Ops.AFTER, f32, (buffer,)), "and effects"),
    (UOp(Ops.BUFFER, f32, (), (1, 2)), "a DEVICE as source"),
    (UOp(Ops.BIND, idx, (n, UOp.const(idx, 10))), "within its bounds"),
    (UOp(Ops.DEVICE, arg=3), "a name"),
    (out, "no PARAM here"),
    (i, "no RANGE here"),
  ],
)  # fmt: skip
def test_illegal_at_the_tensor_level(node: UOp, expected: str) -> None:
  with pytest.raises(SpecError) as caught:
    spec.check(UOp.sink(node), "tensor")
  assert caught.value.node is node and expected in caught.value.expected


def test_loops_of_a_kernel() -> None:
  with pytest.raises(SpecError, match="open are the loops 0"):
    spec.check(kernel(out.index(i).store(value)), "kernel")
  again = UOp.range(5, 0)
  with pytest.raises(SpecError, match="one loop per id"):
    spec.check(kernel(UOp.group(out.index(i).store(value).end(i), out.index(again).store(value).end(again))), "kernel")
  with pytest.raises(SpecError, match="a SINK with KernelInfo as the root"):
    spec.check(out.index(i).store(value).end(i), "kernel")


def test_order_of_a_program() -> None:
  good = program().src
  loop, end = good[3], good[-1]
  for order, expected in (
    (good[:-1], "an END or ENDIF that closes it"),
    ((*good[:3], *good[4:-1], loop, end), "before it"),
    ((*good, end), "close the innermost open block"),
  ):
    with pytest.raises(SpecError, match=expected):
      spec.check(UOp(Ops.LINEAR, src=order), "program")


def test_bodies_of_calls_are_checked() -> None:
  bad = kernel(out.index(i).store(value))
  with pytest.raises(SpecError, match="illegal at the kernel level"):
    spec.check(UOp(Ops.LINEAR, src=(UOp(Ops.CALL, src=(bad, buffer)),)), "schedule")
  with pytest.raises(SpecError, match="then BINDs"):
    spec.check(UOp(Ops.LINEAR, src=(UOp(Ops.CALL, src=(body(), n.bind(1), buffer)),)), "schedule")


def test_values_of_kernels_and_derivatives_of_their_own() -> None:
  spec.check(custom(), "tensor")
  graph = custom()
  assert parse_uop(print_uop(graph)) is graph
  call = next(u for u in custom().toposort if u.op is Ops.CALL)
  assert call.shape == (16,) and (call.device, call.ranges) == ("CPU", frozenset())
  wrong = {
    "another input": call.with_src((*call.src[:2], buffer)),
    "no such result": call.replace(arg=1),
    "another dtype": call.replace(dtype=i32),
    "no device": call.with_src((call.src[0], buffer, *call.src[2:])),
  }
  for node in wrong.values():
    with pytest.raises(SpecError, match="CALL .* expected a kernel whose PARAMs are its results, then its inputs"):
      spec.check(UOp.sink(node), "tensor")
  with pytest.raises(SpecError, match="no PARAM here"):
    spec.check(UOp.sink(call.with_src((UOp.sink(*call.src[0].src), *call.src[1:]))), "tensor")
  bad = call.with_src((kernel(out.index(i).store(value)), *call.src[1:2]))
  with pytest.raises(SpecError, match="illegal at the kernel level.*every loop closed"):
    spec.check(UOp.sink(bad), "tensor")
  x, own = buffer, UOp(Ops.CUSTOM_GRADIENT, f32, (buffer, UOp.sink(buffer, buffer)), CustomGradient("mine", 0, 1))
  spec.check(UOp.sink(own), "tensor")
  for node in (own.replace(arg=None), own.replace(arg=CustomGradient("mine", 0, 2)), own.with_src((x, x))):
    with pytest.raises(SpecError, match="a SINK of inputs and results"):
      spec.check(UOp.sink(node), "tensor")
  with pytest.raises(SpecError, match="values that come before"):
    spec.check(UOp.sink(x.later_than(device)), "tensor")


def test_tags_are_gone_between_stages() -> None:
  tagged = kernel(out.index(i).store(value.rtag("seen")).end(i))
  with pytest.raises(SpecError, match="tag='seen'; expected no tag"):
    spec.check(tagged, "kernel")
  spec.check_nodes(tagged)


def test_settings() -> None:
  bad = UOp.sink(out)
  with Context(SPEC=0):
    assert spec.check_stage(bad, "tensor") is bad
  with Context(SPEC=1), pytest.raises(SpecError, match="illegal at the tensor level after 'mine': PARAM"):
    spec.check_stage(bad, "tensor", "mine")
  with pytest.raises(ValueError, match="unknown level 'kernels'"):
    spec.check(bad, "kernels")  # type: ignore[arg-type]


def test_malformed_arguments_are_refused_not_fatal() -> None:
  """Whatever the parser lets through, the spec answers with SpecError."""
  for op in Ops:
    for arg in (None, "x", (1,), ("a", "b", "c"), 3.5):
      for src in ((), (number,), (number, value, i)):
        node = UOp(op, dtypes.float16, src, arg)
        with pytest.raises(SpecError):
          spec.check(kernel(node), "kernel")


def test_copies_to_near_memory_may_take_their_time() -> None:
  copy = UOp(Ops.STORE, dtypes.void, (near.index(i), inp.index(i).load()), ASYNC).end(i)
  there = near.after(copy.barrier(pending=0))
  whole = kernel(out.index(r).store(there.index(r).load()).end(r))
  spec.check(whole, "kernel")
  assert parse_uop(print_uop(whole)) is whole


def instructions(*effects: UOp) -> UOp:
  """A program of these effects in a loop."""
  inside = [u for u in UOp.group(*effects).toposort if u.op not in (Ops.GROUP, Ops.RANGE)]
  outside = [u for u in inside if i not in u.ranges]
  inner = [u for u in inside if i in u.ranges]
  return UOp(Ops.LINEAR, src=(*outside, i, *inner, effects[0].end(i)))


def test_programs_ask_for_cache_lines() -> None:
  gate, elsewhere = i < 3, near.index(UOp.const(i.dtype, 0))
  store = out.index(i).store(value)
  for asked in (inp.index(i + 16).prefetch(), inp.index(i, gate).prefetch("write", 2, elsewhere)):
    whole = instructions(store, asked)
    spec.check(whole, "program")
    assert parse_uop(print_uop(whole)) is whole
  place = inp.index(i)
  for bad in (place.prefetch("fill"), place.prefetch("read", 0), place.prefetch(otherwise=elsewhere), value.prefetch()):
    with pytest.raises(SpecError, match="a cache level"):
      spec.check(instructions(store, bad), "program")
    with pytest.raises(SpecError, match="a cache level"):
      spec.check(kernel(UOp.group(store, bad).end(i)), "kernel")
  spec.check(kernel(UOp.group(store, place.prefetch()).end(i)), "kernel")
  with pytest.raises(SpecError, match="illegal at the tensor level"):
    spec.check(UOp.sink(place.prefetch()), "tensor")


def test_stores_of_programs_go_past_caches() -> None:
  spec.check(instructions(out.index(i).store(value).replace(arg=STREAMING)), "program")
  with pytest.raises(SpecError):
    spec.check(instructions(near.index(i).store(value).replace(arg=STREAMING)), "program")
  with pytest.raises(SpecError):
    spec.check(kernel(out.index(i).store(value).replace(arg=STREAMING).end(i)), "kernel")
