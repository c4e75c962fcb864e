"""Every public function of tinygrad takes the same arguments here: names, order, defaults. What differs has a reason.

The environment `oracle` has tinygrad's wheel; only the signatures of its public names are looked at.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import tiny_tensor
import tiny_tensor.nn.datasets
import tiny_tensor.nn.optim
import tiny_tensor.nn.state
from tiny_uop import DType

tinygrad: Any = pytest.importorskip("tinygrad")  # only in the environment `oracle`
pytest.importorskip("tinygrad.nn.datasets")

INTERNAL = "what only the implementation used is not there"
PRECISE = "all digits of the constant, as in PyTorch"
LAYOUT = "shapes and sizes are symbolic or numbers; nothing needs the largest ones"
FILES = "the part of a file that a class of io has in C"
FUSED = "updates share kernels where the scheduler finds that they can"

# place and what differs → why that is right
REASONS: dict[str, str] = {
  **{
    f"Tensor.{name} is missing": INTERNAL
    for name in (
      "as_param",
      "call",
      "callify",
      "const",
      "decode_hevc_frame",
      "image_conv2d",
      "image_dot",
      "invalids",
      "is_param",
      "is_param_",
      "random_bits",
      "replace",
      "ufix",
      "uprod",
      "usum",
    )
  },
  "Tensor.max_numel is missing": LAYOUT,
  "Tensor.max_shape is missing": LAYOUT,
  "Tensor.contiguous takes no **kwargs": "hints for their scheduler",
  "Tensor.full has no buffer": "a constant gets a buffer when something is written to it, and not before",
  "Tensor.full_like has no buffer": "as for full",
  "Tensor.selu: alpha is not 1.67326": PRECISE,
  "Tensor.selu: gamma is not 1.0507": PRECISE,
  **{
    f"nn.optim.{name}: fused is not FUSE_OPTIM": FUSED
    for name in ("Adam", "AdamW", "LAMB", "LARS", "Muon", "Optimizer", "SGD")
  },
  **{f"nn.state.{name} is missing": INTERNAL for name in ("accept_filename", "fs_load", "fs_store")},
  **{f"nn.state.TensorIO.{name} is missing": FILES for name in ("mode", "name")},
  "nn.state.TensorIO.readlines has no hint": FILES,
  "nn.state.TensorIO.write has no s": FILES,
  "nn.state.TensorIO.writelines has no lines": FILES,
  "nn.state.get_state_dict: tensor_type is not <class 'tinygrad.tensor.Tensor'>": "it is our own Tensor",
  "Device.get_class is missing": INTERNAL,
  "TinyJit takes no **kwargs": "its options are for their implementation",
  "fetch: headers is not {}": "a default that nobody can change",
  "fetch has no extract": "zip_extract and tar_extract give what is in an archive as tensors",
  "function has no precompile": "everything is compiled when it is first needed, and kept",
  "function has no precompile_backward": "as precompile",
  "function has no allow_implicit": "tensors that the function closes over are followed",
  "Variable has no dtype": "sizes and positions are of one type, index",
  "Variable has no multiple_of": "n * 4 says of a variable n that it is a multiple of 4",
  "Variable has no param": INTERNAL,
  "GlobalCounters.mem_used_per_device is missing": "mem_used is that of all devices",
  **{
    f"dtypes.{name} is missing": "no device computes with it"
    for name in ("fp8_fnuz", "fp8_ocp", "fp8e4m3fnuz", "fp8e5m2fnuz")
  },
  **{f"dtypes.{name} is missing": "constants are weak by themselves" for name in ("weakfloat", "weakint", "weaks")},
  "DType.const is missing": INTERNAL,
  "DType.new is missing": INTERNAL,
  "DType.priority is missing": "promotion follows a lattice, not an order",
}

Parameter = inspect.Parameter
CREATION = {"device", "dtype", "requires_grad"}
"""What `**kwargs` of a function that makes tensors stands for."""


def public(owner: Any) -> list[str]:
  return [name for name in sorted(dir(owner)) if not name.startswith("_")]


def signature(function: Any) -> inspect.Signature | None:
  try:
    return inspect.signature(function)
  except (TypeError, ValueError):
    return None


def differences(where: str, theirs: Any, ours: Any) -> Iterator[str]:
  """What of the arguments of their function ours does not take in the same way."""
  wanted, given = signature(theirs), signature(ours)
  if wanted is None:
    return
  if given is None:
    yield f"{where} has no signature"
    return
  mine = list(given.parameters.values())
  names = {p.name: p for p in mine}
  options = any(p.kind is Parameter.VAR_KEYWORD for p in mine)
  body = inspect.getattr_static(ours, "__init__") if inspect.isclass(ours) else ours
  aliases: dict[str, str] = getattr(body, "other_names", {})
  for place, p in enumerate(wanted.parameters.values()):
    found = names.get(aliases.get(p.name, p.name))
    if p.name == "self":
      continue
    if p.kind is Parameter.VAR_POSITIONAL:
      if not any(q.kind is p.kind for q in mine):
        yield f"{where} takes no *{p.name}"
    elif p.kind is Parameter.VAR_KEYWORD:
      if not options and not names.keys() & CREATION:
        yield f"{where} takes no **{p.name}"
    elif found is None or found.kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
      yield f"{where} has no {p.name}"
    elif p.kind is Parameter.POSITIONAL_OR_KEYWORD and (found.kind is not p.kind or mine.index(found) != place):
      yield f"{where}: {p.name} is not number {place}"
    elif p.default is not Parameter.empty and not same_default(p.default, found.default):
      yield f"{where}: {p.name} is {'required' if found.default is Parameter.empty else f'not {shown(p.default)}'}"


def shown(default: Any) -> str:
  """A default, as it is written in the table: settings by their names."""
  return str(getattr(default, "key", default))


def same_default(theirs: Any, ours: Any) -> bool:
  if isinstance(ours, DType):
    return theirs is getattr(tinygrad.dtypes, ours.name)
  return bool(theirs == ours) and type(theirs) is type(ours)


def members(where: str, theirs: Any, ours: Any) -> Iterator[str]:
  """What of the public members of a class or an object is not there, or takes other arguments."""
  for name in public(theirs):
    if not hasattr(ours, name):
      yield f"{where}.{name} is missing"
    elif callable(inspect.getattr_static(theirs, name, None)) or inspect.isroutine(getattr(theirs, name)):
      yield from differences(f"{where}.{name}", getattr(theirs, name), getattr(ours, name))


def module(where: str) -> Iterator[str]:
  """The same for the names that a module defines, and the members of its classes."""
  theirs, ours = getattr_path(tinygrad, where), getattr_path(tiny_tensor, where)
  for name in public(theirs):
    found = getattr(theirs, name)
    if getattr(found, "__module__", None) != theirs.__name__:
      continue
    if not hasattr(ours, name):
      yield f"{where}.{name} is missing"
      continue
    yield from differences(f"{where}.{name}", found, getattr(ours, name))
    if inspect.isclass(found):
      yield from members(f"{where}.{name}", found, getattr(ours, name))


def getattr_path(owner: Any, path: str) -> Any:
  for name in path.split("."):
    owner = getattr(owner, name)
  return owner


def all_differences() -> Iterator[str]:
  for name in ("Tensor", "TinyJit", "Context", "fetch", "getenv", "function", "Variable"):
    yield from differences(name, getattr(tinygrad, name), getattr(tiny_tensor, name))
  yield from members("Tensor", tinygrad.Tensor, tiny_tensor.Tensor)
  for name in ("nn", "nn.optim", "nn.state", "nn.datasets"):
    yield from module(name)
  yield from members("GlobalCounters", tinygrad.GlobalCounters, tiny_tensor.GlobalCounters)
  yield from members("dtypes", tinygrad.dtypes, tiny_tensor.dtypes)
  yield from members("DType", tinygrad.dtypes.int32, tiny_tensor.dtypes.int32)
  yield from members("Device", type(tinygrad.Device), type(tiny_tensor.Device))


def test_arguments_are_the_same() -> None:
  found = list(all_differences())
  assert [d for d in found if d not in REASONS] == [], "fix these, or say in REASONS why they are right"


def test_every_reason_is_needed() -> None:
  assert REASONS.keys() - set(all_differences()) == set(), "these differ no more"


def test_types_have_the_same_facts() -> None:
  for name in public(tinygrad.dtypes):
    theirs, ours = getattr(tinygrad.dtypes, name), getattr(tiny_tensor.dtypes, name, None)
    if isinstance(ours, DType) and ours in tiny_tensor.dtypes.all:
      facts = ("min", "max", "fmt", "bitsize", "itemsize")
      # the greatest fp8e4m3 is 448: it has no infinity
      wanted = [getattr(theirs, f) for f in facts[2 if name == "fp8e4m3" else 0 :]]
      assert [getattr(ours, f) for f in facts[2 if name == "fp8e4m3" else 0 :]] == wanted, name
      if tinygrad.dtypes.is_float(theirs):
        assert tiny_tensor.dtypes.finfo(ours) == tinygrad.dtypes.finfo(theirs), name
