"""Enumerations: members are found by name, by value and in order; they are single objects, and nobody changes them."""

from __future__ import annotations

import copy
import pickle

import pytest

from tiny_uop import AddrSpace, AxisType, Ops
from tiny_uop.ops import GroupOp


def test_members_are_found_by_name_and_by_value() -> None:
  assert Ops["ADD"] is Ops.ADD and AddrSpace("local") is AddrSpace.LOCAL
  assert Ops.ADD.name == "ADD" and AddrSpace.LOCAL.value == "local"
  with pytest.raises(ValueError, match="'far' is not a valid AddrSpace"):
    AddrSpace("far")
  with pytest.raises(KeyError, match="PLUS"):
    Ops["PLUS"]


def test_members_stand_in_the_order_of_the_class() -> None:
  assert [kind.name for kind in AddrSpace] == ["GLOBAL", "LOCAL", "REG"] == list(AddrSpace.__members__)
  assert [op.value for op in Ops] == list(range(1, len(Ops) + 1))
  assert frozenset(Ops) >= GroupOp.Elementwise
  assert Ops.ADD in Ops and AxisType.LOOP not in Ops


def test_members_are_printed_as_in_a_program() -> None:
  assert f"{Ops.ADD} {AxisType.LOOP!r}" == "Ops.ADD AxisType.LOOP"


@pytest.mark.parametrize("member", [Ops.MULACC, AxisType.VECTOR, AddrSpace.REG], ids=str)
def test_a_copy_of_a_member_is_the_member(member: Ops | AxisType | AddrSpace) -> None:
  assert pickle.loads(pickle.dumps(member)) is copy.deepcopy(member) is copy.copy(member) is member
  assert {member: 1}[member] == 1


def test_nobody_changes_members() -> None:
  with pytest.raises(AttributeError, match=r"cannot reassign member 'ADD'"):
    Ops.ADD = Ops.MUL  # type: ignore[misc, assignment]
  with pytest.raises(AttributeError, match=r"ADD"):
    del Ops.ADD
