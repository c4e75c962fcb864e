"""`Module`: PyTorch's base class of models and layers, over what `nn.state` finds in any object."""

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partialmethod
from typing import TYPE_CHECKING, Any, Self

from tiny_tensor.origins import here, layer, marked
from tiny_tensor.pytorch_names import MODULE
from tiny_tensor.pytree import children_of
from tiny_tensor.tensor import Tensor
from tiny_uop import dtypes


class Module:
  """What a model or layer may be derived from; a plain class with `__call__` does as well. A subclass defines `forward`
  (or `__call__`), and calling it calls that.

  Its tensors are those in its attributes, and in lists, dicts and objects there. A tensor with `requires_grad` False is
  a buffer, as running statistics are; the other floats are parameters. There are no hooks.
  """

  def __init_subclass__(cls, **kwargs: Any) -> None:
    super().__init_subclass__(**kwargs)
    if cls.__module__.startswith("tiny_tensor.") and "__call__" in vars(cls):
      cls.__call__ = layer(cls.__call__)  # type: ignore[method-assign]

  def __call__(self, *args: Any, **kwargs: Any) -> Any:
    if here.mark is None:
      return self.forward(*args, **kwargs)
    with marked(None):  # a layer of ours calls it, and its lines say more
      return self.forward(*args, **kwargs)

  def forward(self, *args: Any, **kwargs: Any) -> Any:
    """What calling the module computes."""
    if type(self).__call__ is Module.__call__:
      raise NotImplementedError(f"{type(self).__name__} defines neither forward() nor __call__()")
    return self(*args, **kwargs)

  def state_dict(self) -> dict[str, Tensor]:
    """All tensors by path, as `nn.state.get_state_dict`."""
    from tiny_tensor.nn.state import get_state_dict  # here and below: with it come the formats of files

    return get_state_dict(self)

  def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> list[Tensor]:
    """Assigns tensors or arrays to those of the same name, as `nn.state.load_state_dict`, which says what it raises."""
    from tiny_tensor.nn.state import load_state_dict

    return load_state_dict(self, dict(state_dict), strict, verbose=False)

  def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
    """The parameters by path, one that is held twice under its first. Those that have not decided require a gradient
    from now on, as PyTorch's do."""
    seen: set[int] = set()
    for name, t in self.state_dict().items():
      if dtypes.is_float(t.dtype) and t.requires_grad is not False and id(t) not in seen:
        seen.add(id(t))
        yield name, t if t.requires_grad else t.requires_grad_()

  def parameters(self) -> list[Tensor]:
    """The parameters, for an optimiser. `nn.state.get_parameters(self)` has the buffers too."""
    return [t for _, t in self.named_parameters()]

  def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
    """What is no parameter, by path."""
    return ((n, t) for n, t in self.state_dict().items() if t.requires_grad is False or not dtypes.is_float(t.dtype))

  def buffers(self) -> list[Tensor]:
    """What is no parameter: running statistics, and what is frozen."""
    return [t for _, t in self.named_buffers()]

  def register_buffer(self, name: str, tensor: Tensor) -> None:
    """`self.NAME = tensor.requires_grad_(False)`."""
    setattr(self, name, tensor.requires_grad_(False))

  def requires_grad_(self, requires_grad: bool = True) -> Self:
    """Whether the parameters require a gradient. False freezes them; True is for all floats but running statistics."""
    for name, t in self.state_dict().items():
      if dtypes.is_float(t.dtype) and not name.rpartition(".")[2].startswith("running_"):
        t.requires_grad_(requires_grad)
    return self

  def named_children(self) -> Iterator[tuple[str, "Module"]]:
    """The modules in its attributes, and in lists and dicts there, by path."""
    from tiny_tensor.nn.state import get_state_dict

    for name, value in children_of(self):
      yield from get_state_dict(value, name, Module).items()  # type: ignore[misc]  # of the type that was asked for

  def named_modules(self, prefix: str = "") -> Iterator[tuple[str, "Module"]]:
    """Itself under the name "", and all modules below it by path."""
    yield prefix, self
    for name, child in self.named_children():
      yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

  def children(self) -> list["Module"]:
    """The modules of `named_children`."""
    return [m for _, m in self.named_children()]

  def modules(self) -> list["Module"]:
    """Itself and all modules below it."""
    return [m for _, m in self.named_modules()]

  def apply(self, f: Callable[["Module"], object]) -> Self:
    """Calls `f` with every module, itself last: to initialise weights, for example."""
    for m in reversed(self.modules()):
      f(m)
    return self

  @property
  def training(self) -> bool:
    """`Tensor.training`: one mode for all modules."""
    return Tensor.training

  def train(self, mode: bool = True) -> Self:
    """Sets `Tensor.training`, for all modules: dropout and batch statistics, and optimisers may step."""
    Tensor.training = mode
    return self

  def eval(self) -> Self:
    """`train(False)`."""
    return self.train(False)

  def zero_grad(self, set_to_none: bool = True) -> None:
    """Forgets the gradients, or makes them zeros."""
    for t in self.state_dict().values():
      t.grad = None if set_to_none or t.grad is None else t.grad.zeros_like()

  def to(self, *args: Any, **kwargs: Any) -> Self:
    """Moves all tensors to a device, or those of floats to a dtype, or both: the arguments of `Tensor.to`."""
    tensors = list(self.state_dict().values())
    for t in tensors:
      moved = t.detach().to(*args, **kwargs)
      if dtypes.is_float(t.dtype) or moved.dtype is t.dtype:
        t._become(moved, lambda grad: grad.to(*args, **kwargs))
    if tensors:
      tensors[0].realize(*tensors[1:])
    return self

  float = partialmethod(to, dtypes.float32)
  double = partialmethod(to, dtypes.float64)
  half = partialmethod(to, dtypes.float16)
  bfloat16 = partialmethod(to, dtypes.bfloat16)
  cpu = partialmethod(to, "CPU")
  cuda = partialmethod(to, "CUDA")

  def extra_repr(self) -> str:
    """What `repr` says of the module itself: the shapes of its tensors, and its numbers."""
    own = {name: value for name, value in vars(self).items() if not name.startswith("_")}
    tensors = [f"{name} {value.shape}" for name, value in own.items() if isinstance(value, Tensor)]
    return ", ".join([*tensors, *(f"{n}={v}" for n, v in own.items() if isinstance(v, (bool, int, builtins.float)))])

  def __repr__(self) -> str:
    parts = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in self.named_children()]
    own = self.extra_repr()
    inside = "".join(f"\n  {part}" for part in ([own] if own else []) + parts) + "\n" if parts else own
    return f"{type(self).__name__}({inside})"

  if not TYPE_CHECKING:  # type checkers know all names that there are

    def __getattr__(self, name):
      advice = MODULE.get(name)
      here = f". Here: {advice}" if advice else ""
      raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{here}", name=name, obj=self)


class ModuleList(Module, list[Any]):
  """A list of modules. A plain list does as well."""

  def __init__(self, modules: Iterable[Any] = ()) -> None:
    super().__init__(modules)


class ModuleDict(Module, dict[str, Any]):
  """A dict of modules. A plain dict does as well."""


def Parameter(data: Any, requires_grad: bool = True) -> Tensor:
  """`Tensor(data, requires_grad=requires_grad)`: any Tensor in an attribute is a parameter."""
  return Tensor(data.detach() if isinstance(data, Tensor) else data, requires_grad=requires_grad)


__all__ = ["Module", "ModuleDict", "ModuleList", "Parameter"]
