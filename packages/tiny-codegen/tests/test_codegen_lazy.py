"""Sides of a WHERE that are computed only where a lane takes them, and instructions that few processors have."""

from __future__ import annotations

import re

import numpy as np
import pytest
from codegen_elementwise import RENDERERS, apply, host, info_of

from tiny_codegen.kernel.lazy_branches import LEAST, branches
from tiny_codegen.render import LLVMRenderer, cpu_target
from tiny_uop import DType, Ops, UOp, dtypes, evaluate

AVX512 = ("+sse4.1", "+avx", "+avx2", "+fma", "+avx512f", "+avx512vl")


def costly(x: UOp, seed: float, steps: int = LEAST) -> UOp:
  for step in range(steps):
    x = x * 0.5 + (seed + step)
  return x


def loaded(lanes: int = 1) -> UOp:
  return UOp.param(1, dtypes.float32.ptr(64)).index(UOp.const(dtypes.int32, 0)).load(dtype=dtypes.float32.vec(lanes))


def test_what_only_one_side_needs() -> None:
  x = loaded()
  rare = costly(x, 1.0)
  chosen = (x < 3.0).where(x + 1.0, rare)
  branch = branches(chosen.toposort)[chosen]
  assert branch.side == 2 and branch.roots == (rare,) and branch.wheres == (chosen,)
  assert list(branch.values) == [u for u in chosen.toposort if u in rare.toposort and u.op in (Ops.ADD, Ops.MUL)]


def test_the_costlier_side_is_a_branch() -> None:
  x = loaded()
  for more, side in ((5, 2), (-5, 1)):
    chosen = (x < 3.0).where(costly(x, 1.0, LEAST), costly(x, 90.0, LEAST + more) if more > 0 else x * 3.0)
    assert branches(chosen.toposort)[chosen].side == side


def test_what_others_need_is_computed_before() -> None:
  x = loaded()
  rare = costly(x, 1.0)
  assert not branches(((x < 3.0).where(x + 1.0, rare) + rare).toposort)
  assert not branches((rare < 3.0).where(x, rare).toposort)
  assert not branches((x < 3.0).where(rare, rare + 1.0).toposort)


def test_a_cheap_side_is_computed() -> None:
  x = loaded()
  assert not branches((x < 3.0).where(x, costly(x, 1.0, 3)).toposort)


def test_what_stands_outside_of_a_loop_stays_there() -> None:
  x = loaded()
  loop = UOp.range(8, 0, dtype=dtypes.int32)
  rare, inside = costly(x, 1.0), UOp.param(2, dtypes.float32.ptr(8)).index(loop).load()
  chosen = (inside < 3.0).where(inside, rare)
  listed = (*rare.toposort, loop, *(u for u in chosen.toposort if u not in rare.toposort and u is not loop))
  assert not branches(listed)


def test_the_innermost_where_has_it() -> None:
  x = loaded()
  inner = (x < 1.0).where(x, costly(x, 5.0))
  outer = (x < 3.0).where(x + 1.0, costly(inner, 1.0))
  found = branches(outer.toposort)
  assert set(found) == {inner, outer} and inner in found[outer].values
  assert not set(found[inner].values) & set(found[outer].values)


def test_wheres_of_one_condition_share_a_branch() -> None:
  x = loaded()
  rare = costly(x, 1.0)
  first, second = (x < 3.0).where(x, rare), (x < 3.0).where(x + 1.0, rare * 2.0)
  branch = branches((first + second).toposort)[first]
  assert branch.wheres == (first, second) and branch.roots == (rare, rare * 2.0)


def test_a_branch_stands_where_its_sources_are_there() -> None:
  """The second WHERE's side needs the first WHERE."""
  x = loaded()
  first = (x < 3.0).where(x, costly(x, 1.0))
  second = (x < 3.0).where(x + 1.0, costly(first, 9.0))
  branch = branches(second.toposort)[first]
  assert branch.wheres == (first,)


def test_wheres_in_and_outside_of_a_branch_share_none() -> None:
  x = loaded()
  rare = costly(x, 1.0)
  first, second = (x < 3.0).where(x, rare), (x < 3.0).where(x + 1.0, rare * 2.0)
  outer = (x < 9.0).where(second, costly(first, 2.0))
  assert set(branches(outer.toposort)) == {outer}


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("sides", ["true", "false", "both", "nested", "shared"])
def test_every_mixture_of_lanes(sides: str, lanes: int) -> None:
  def function(x: UOp) -> UOp:
    first = costly(x, 1.0) if sides != "false" else x
    second = costly(x, 7.0) if sides != "true" else x * 3.0
    if sides == "nested":
      second = (x < 5.0).where(second, costly(x, 9.0))
    if sides == "shared":
      return (x < 3.0).where(x, second) + (x < 3.0).where(x + 1.0, second * 2.0)
    return (x < 3.0).where(first, second)

  x = np.array([*range(8), *[1] * 8, *[4] * 8, *[7] * 8, *[1, 4] * 4, *[7, 4] * 4, 1, *[7] * 7], np.float32)
  got = apply(host(), function, [(dtypes.float32, x)], dtypes.float32, lanes)
  wanted = [evaluate(function(UOp.const(dtypes.float32, float(v)))) for v in x]
  np.testing.assert_allclose(got, wanted, rtol=1e-6)
  text = LLVMRenderer(cpu_target()).render(
    linear := UOp(Ops.LINEAR, src=UOp.param(0, dtypes.float32.ptr(64)).index(UOp.const(dtypes.int32, 0)).store(
      function(loaded(lanes))).toposort), info_of(linear))  # fmt: skip
  assert len(re.findall(r"= phi", text)) == {"true": 1, "false": 1, "both": 1, "nested": 2, "shared": 2}[sides]


@pytest.mark.parametrize("renderer", RENDERERS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=str)
def test_ldexp_of_any_number_of_lanes(dtype: DType, renderer: str) -> None:
  kind = np.dtype(dtype.name)
  values = np.array([1.5, -0.75, 1.1, 0.0, -0.0, np.inf, np.nan, 3e-39], kind)
  exponents = np.array([0, 1, -1, 100, -140, 127, -149, 149, -150, 40], kind)
  x, n = (np.ascontiguousarray(a.reshape(-1)[:64]) for a in np.meshgrid(values, exponents))
  with np.errstate(all="ignore"):
    wanted = np.ldexp(x, n.astype(np.int32))
  for lanes in (1, 2, 3, 4, 8, 16, 17, 32):
    got = apply(RENDERERS[renderer](), lambda a, b: a.alu(Ops.LDEXP, b), [(dtype, x), (dtype, n)], dtype, lanes)
    np.testing.assert_array_equal(got, wanted[: len(got)])


def test_instructions_follow_from_features() -> None:
  wide, narrow = cpu_target("x86_64", features=AVX512), cpu_target("x86_64", features=AVX512[:-2])
  assert Ops.LDEXP in wide.target.native_ops and Ops.LDEXP not in narrow.target.native_ops
  place = UOp.param(0, dtypes.float32.ptr(64)).index(UOp.const(dtypes.int32, 0))
  for lanes, name, times in ((32, "ps.512", 2), (16, "ps.512", 1), (8, "ps.256", 1), (2, "ps.128", 1)):
    x = loaded(lanes)
    linear = UOp(Ops.LINEAR, src=place.store(x.alu(Ops.LDEXP, x)).toposort)
    text = LLVMRenderer(wide).render(linear, info_of(linear))
    assert len(re.findall(rf"= call .*scalef\.{name}\(", text)) == times
