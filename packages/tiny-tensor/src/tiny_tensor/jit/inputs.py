"""The arguments of a call of a `TinyJit`: what a replay substitutes, and a description of all that must stay."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tiny_tensor.capturing import JitError
from tiny_tensor.jit.graphs import binds_in, buffers_below, is_whole, realize_lazy
from tiny_tensor.jit.values import Bound, Described, Structure, Value, gradient_wish, short
from tiny_tensor.methods.devices import placement
from tiny_tensor.pytree import nodes, parts, rebuild
from tiny_tensor.tensor import Tensor
from tiny_uop import Ops, UOp, dtypes
from tiny_uop.context import DEVICE

_MUTABLE_DATA = (bytearray, memoryview)


def settings() -> tuple[Any, ...]:
  """The settings that the methods of Tensor read besides their arguments."""
  return (Tensor.training, dtypes.default_float, dtypes.default_int, DEVICE.value)


_SETTINGS = ("Tensor.training", "dtypes.default_float", "dtypes.default_int", "DEVICE")


def named_parameters(fxn: Callable[..., Any]) -> tuple[str, ...]:
  """The parameters of a function that can be given by name."""
  try:
    found = inspect.signature(fxn).parameters.values()
  except (TypeError, ValueError):
    return ()
  return tuple(p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


class Inputs:
  """The arguments of one call: buffers and variables that a replay substitutes, and a description of all the rest.

  Arguments by name come in the order of the parameters `names`, then those that `**kwargs` takes, as they are given.
  `copied` says which of the tensors, in their order, are to be copied.
  """

  def __init__(
    self,
    names: tuple[str, ...],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    copied: Callable[[int], bool] = lambda place: False,
  ) -> None:
    known = [name for name in names if name in kwargs]
    others = [name for name in kwargs if name not in known]
    arguments = {name: kwargs[name] for name in (*known, *others)}
    found = [entry for i, value in enumerate(args) for entry in nodes(value, f"args[{i}]")]
    found += [entry for name, value in arguments.items() for entry in nodes(value, f"kwargs[{name!r}]")]
    self.buffers: list[UOp] = []
    self.tensors: list[Tensor] = []
    """The caller's tensors, in the order of `buffers`: one on several devices as often as it has buffers."""
    self.given: dict[int, int] = {}
    """For each tensor that the function gets, by its id, its place in `tensors`."""
    self.copies: list[UOp] = []
    """The buffers that are copies, because the caller's tensor is a view or a constant."""
    self.variables: dict[str, int] = {}
    self.described: dict[str, Any] = {name: Value(value) for name, value in zip(_SETTINGS, settings(), strict=True)}
    if others:
      self.described["the order of **kwargs"] = Value(", ".join(others))
    self._owners: dict[UOp, str] = {}
    self._copied = copied
    realize_lazy(leaf for _, leaf in found if isinstance(leaf, Tensor))
    replaced = {id(leaf): self._tensor(path, leaf) for path, leaf in found if isinstance(leaf, Tensor)}
    for path, leaf in found:
      if not isinstance(leaf, Tensor):
        self.described[path] = self._other(path, leaf)
    self.args, self.kwargs = rebuild((args, arguments), lambda leaf: replaced.get(id(leaf), leaf))

  def _other(self, path: str, value: Any) -> Any:
    """The description of an argument that is no tensor."""
    if (inner := parts(value)) is not None:
      return Structure(type(value), tuple(inner))
    if isinstance(value, UOp):
      return self._bind(path, value)
    if isinstance(value, _MUTABLE_DATA) or hasattr(value, "__array_interface__"):
      raise JitError(f"{path} is a {type(value).__name__}, whose contents a replay would not look at: pass a Tensor")
    return Value(value)

  def _bind(self, path: str, uop: UOp) -> Bound:
    """Notes the value of a bound variable, and describes the variable."""
    if uop.op is not Ops.BIND:
      raise JitError(f"{path} is the UOp {short(uop)}: only a bound Variable can be an argument")
    variable, value = uop.unbind()
    name = str(variable.arg[0])
    if self.variables.setdefault(name, value) != value:
      raise JitError(f"variable {name!r} is bound to {self.variables[name]} and, in {path}, to {value}")
    return Bound(variable.arg)

  def _tensor(self, path: str, given: Tensor) -> Tensor:
    """Notes a tensor, and gives the one to call the function with."""
    t = given
    binds = binds_in(t.uop)
    for bind in binds:
      self._bind(path, bind)
    shape = tuple(s if isinstance(s, int) else s.substitute(binds_in(s)) for s in t.shape)
    view = None
    if 0 not in t.shape:
      below = self._buffers(path, t) if is_whole(t.uop) or binds else None
      # where a view begins is part of the graph: a copy is right for every view
      if not binds and (below is None or self._copied(len(self.tensors))):
        t = Tensor(t.uop).clone().realize().requires_grad_(t.requires_grad)
        t.grad = given.grad
        self.copies += buffers_below(t.uop) if below is None else []
      below = self._buffers(path, t)
      self.given[id(t)] = len(self.tensors)
      self.buffers += below
      self.tensors += [given] * len(below)
      nothing = {buffer: UOp.const(buffer.dtype, 0, (buffer.arg[1],)) for buffer in below}
      view = t.uop.substitute({**binds, **nothing}) if binds else None
    has_grad = given.requires_grad is True and given.grad is not None
    wish = gradient_wish(t.requires_grad, t.dtype)
    self.described[path] = Described(shape, t.dtype.name, placement(t.uop), wish, has_grad, view)
    return t

  def _buffers(self, path: str, t: Tensor) -> tuple[UOp, ...]:
    """The buffers of a tensor, which no other argument may have."""
    found = buffers_below(t.uop)
    if not found:
      raise JitError(f"{path}, of shape {t.shape}, has no buffer after it was realised: {t.uop!r}")
    for buffer in found:
      if self._owners.setdefault(buffer, path) != path:
        raise JitError(
          f"{path} and {self._owners[buffer]} are the same buffer: a replay could not tell them apart, copy one"
        )
    return found

  def difference(self, before: Mapping[str, Any]) -> str | None:
    """The first difference from the description of another call, in words; None if there is none."""
    now = self.described
    if now == before:
      return None
    for path in {**before, **now}:
      if path not in now or path not in before or now[path] != before[path]:
        return f"{path} is {now.get(path, 'absent')}, it was {before.get(path, 'absent')}"
    return None
