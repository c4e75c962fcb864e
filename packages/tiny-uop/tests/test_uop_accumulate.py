"""STOREs that accumulate: how they are built, checked, printed, and shown to people."""

from __future__ import annotations

import pytest

from tiny_uop import Accumulate, KernelInfo, Ops, SpecError, UOp, dtypes, parse_uop, print_uop, spec
from tiny_uop.text.readable import readable

bins, index = UOp.param(0, dtypes.int32.ptr(8)), UOp.param(1, dtypes.uint8.ptr(100))
n = UOp.range(100, 0)
place = bins.index(index.index(n).load().cast(dtypes.index))


def kernel(effect: UOp) -> UOp:
  return UOp.sink(effect, arg=KernelInfo("histogram"))


@pytest.mark.parametrize("atomic", (False, True))
@pytest.mark.parametrize("op", (Ops.ADD, Ops.MUL, Ops.MAX, Ops.AND, Ops.OR, Ops.XOR))
def test_built_and_printed(op: Ops, atomic: bool) -> None:
  store = place.accumulate(op, 1, atomic)
  assert store.arg == Accumulate(op, atomic) and store.src[1] is UOp.const(dtypes.int32, 1)
  whole = kernel(store.end(n))
  spec.check(whole, "kernel")
  assert parse_uop(print_uop(whole)) is whole


def test_shown_to_people() -> None:
  text = readable(kernel(UOp.group(place.accumulate(Ops.ADD, 1), place.accumulate(Ops.MAX, 2, True)).end(n)))
  assert "p0[index(p1[r0])] += 1" in text and "p0[index(p1[r0])] atomic max= 2" in text


def test_programs_have_atomic_ones_only() -> None:
  address, value = bins.index(UOp.const(dtypes.int32, 3)), UOp.const(dtypes.int32, 1)
  nodes = (bins, address.src[1], address, value)
  for atomic in (True, False):
    store = address.accumulate(Ops.ADD, value, atomic)
    linear = UOp(Ops.LINEAR, dtypes.void, (*nodes, store), KernelInfo("program"))
    if atomic:
      spec.check(linear, "program")
    else:
      with pytest.raises(SpecError, match="an Accumulate of that type which is atomic"):
        spec.check(linear, "program")
