"""What a user of PyTorch writes by habit, and what to write here: the words of `AttributeError`s."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from tiny_uop import DType, dtypes

ALIASES = {
  "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
  "arctan2": "atan2", "arctanh": "atanh", "bitwise_left_shift": "lshift", "bitwise_right_shift": "rshift",
  "divide": "div", "fix": "trunc", "floor_divide": "floordiv", "greater": "gt", "greater_equal": "ge", "less": "lt",
  "less_equal": "le", "moveaxis": "movedim", "multiply": "mul", "ndimension": "dim", "negative": "neg",
  "nelement": "numel", "not_equal": "ne", "remainder": "mod", "split_with_sizes": "split", "subtract": "sub",
  "swapdims": "swapaxes", "true_divide": "div",
}  # fmt: skip
"""Second names of methods: `t.multiply(x)` is `t.mul(x)`, and so in place."""

_COMPLEX = "complex numbers are pairs of real tensors here: see fft"
_SPARSE = "there are no sparse tensors: gather() and scatter() read and write by positions"
_FOLLOW = "functions of gradients: y.gradient(x), or tiny_tensor.function with a backward of its own"
_MEMORY = "memory is seen by t.data(), np.from_dlpack(t) or t.__dlpack__()"
TENSOR = {
  "angle": _COMPLEX, "cfloat": _COMPLEX, "conj": _COMPLEX, "imag": _COMPLEX, "is_complex": _COMPLEX, "real": _COMPLEX,
  "is_sparse": _SPARSE, "to_dense": _SPARSE, "to_sparse": _SPARSE, "coalesce": _SPARSE,
  "register_hook": _FOLLOW, "retain_grad": _FOLLOW, "retains_grad": _FOLLOW,
  "data_ptr": _MEMORY, "is_contiguous": _MEMORY, "storage": _MEMORY, "stride": _MEMORY, "untyped_storage": _MEMORY,
  "bernoulli": "(Tensor.rand(*t.shape) < t).cast(t.dtype)",
  "byte": 't.cast("uint8")',
  "char": 't.cast("int8")',
  "detach_": "t = t.detach()",
  "get_device": "t.device",
  "grad_fn": "t.uop, the graph; t.requires_grad says whether a gradient passes",
  "indices": "t.argmax(axis), t.argmin(axis); sort() and topk() give (values, positions)",
  "is_cuda": 't.device, "CUDA" or "CUDA:1"',
  "is_leaf": "t.requires_grad; t.grad is kept for what was given requires_grad=True",
  "layout": "nothing: elements lie in the order of the axes",
  "new_tensor": "Tensor(data, dtype=t.dtype, device=t.device)",
  "pin_memory": "nothing: t.to(device) copies from any memory",
  "share_memory_": "nothing: pickle carries values to other processes",
  "type": "t.cast(dtype), t.dtype",
  "type_as": "t.cast(other.dtype)",
  "values": "t.max(axis) and t.min(axis) themselves; sort() and topk() give (values, positions)",
}  # fmt: skip
"""Attributes of a Tensor → what to write."""

MOVING = ("squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
"""Methods that PyTorch has in place, and which would change the shape of a tensor."""

_SEED = "Tensor.manual_seed(seed)"
_GRADIENTS = "y.gradient(x), y.backward(); tiny_tensor.func has jacobians, jvp and vmap"
_DEVICES = 't.to("CUDA"); Device.DEFAULT names the default device, Context(DEVICE="CUDA") and DEVICE=CUDA change it'
_JIT = "@TinyJit around the step: from the third call on it is one submission"
TOP = {
  "as_tensor": "Tensor(data)", "asarray": "Tensor(data)", "from_numpy": "Tensor(array)", "frombuffer": "Tensor(bytes)",
  "grad": _GRADIENTS,
  "backends": _DEVICES, "cuda": _DEVICES, "device": _DEVICES, "mps": _DEVICES, "set_default_device": _DEVICES,
  "xpu": _DEVICES,
  "amp": "with Tensor.autocast(dtypes.float16): and nn.optim.GradScaler",
  "autocast": "with Tensor.autocast(dtypes.bfloat16):",
  "compile": _JIT,
  "concat": "Tensor.cat(a, b)", "concatenate": "Tensor.cat(a, b)",
  "distributed": "t.shard(devices, axis): several devices in one process",
  "enable_grad": "nothing: with Tensor.no_grad(): ends with its block",
  "functional": "nn.functional",
  "get_rng_state": _SEED, "random": _SEED, "seed": _SEED, "set_rng_state": _SEED, "Generator": _SEED,
  "hub": "fetch(url), then nn.state.torch_load(path)",
  "inference_mode": "with Tensor.no_grad():",
  "is_tensor": "isinstance(x, Tensor)",
  "load": "nn.state.safe_load(path); nn.state.torch_load(path) for files of torch.save",
  "no_grad": "with Tensor.no_grad():",
  "optim": "nn.optim",
  "promote_types": "dtypes.promote(a, b)", "result_type": "dtypes.promote(a.dtype, b.dtype)",
  "save": "nn.state.safe_save(nn.state.get_state_dict(net), path)",
  "set_default_dtype": "dtypes.default_float = dtypes.float64",
  "set_grad_enabled": "with Tensor.no_grad():",
  "set_num_threads": "the environment variable CPU_COUNT",
  "set_printoptions": "numpy.set_printoptions(…): print(t) shows a NumPy array",
  "Size": "tuple",
  "utils": "nn.datasets.DataLoader for batches, tiny_tensor.checkpoint for less memory",
}  # fmt: skip
"""Names in the module `torch` → what to write, but those of Tensor's methods, of dtypes and of our own modules."""

_INIT = "Tensor.kaiming_uniform(…), Tensor.glorot_uniform(…) make weights; w.uniform_(), w.normal_(), … fill them"
_SHARD = "one process: move weights and batches with t.shard_(devices, axis)"
NN = {
  "DataParallel": _SHARD, "parallel": _SHARD, "SyncBatchNorm": "nn.BatchNorm2d",
  "Buffer": "self.NAME = t.requires_grad_(False)",
  "init": _INIT,
  "PReLU": "lambda x: nn.functional.prelu(x, weight)", "RReLU": "lambda x: nn.functional.rrelu(x)",
  "ParameterDict": "a dict", "ParameterList": "a list",
  "Transformer": "nn.TransformerEncoder and nn.TransformerDecoder",
  "Unflatten": "lambda x: x.unflatten(axis, sizes)",
  "utils": "nn.clip_grad_norm_, nn.clip_grad_value_",
}  # fmt: skip
"""Names in `torch.nn` → what to write, but those that `nn.functional` has as functions."""

_HOOK = "there are no hooks: a subclass whose forward() looks at what the layer gives"
MODULE = {
  "add_module": "setattr(net, name, layer)", "register_module": "setattr(net, name, layer)",
  "register_parameter": "setattr(net, name, nn.Parameter(t))",
  "compile": _JIT,
  "get_buffer": "net.state_dict()[path]", "get_parameter": "net.state_dict()[path]",
  "get_submodule": "dict(net.named_modules())[path]",
  "register_backward_hook": _HOOK, "register_forward_hook": _HOOK, "register_forward_pre_hook": _HOOK,
  "register_full_backward_hook": _HOOK,
  "to_empty": "net.to(device)", "type": "net.to(dtype)",
}  # fmt: skip
"""Attributes of a module → what to write."""

_RULE = "a subclass of nn.optim.Optimizer that defines update()"
OPTIM = {
  "lr_scheduler": "nn.schedule: StepLR and all others",
  **dict.fromkeys(("ASGD", "Adadelta", "Adafactor", "Adamax", "LBFGS", "NAdam", "RAdam", "Rprop", "SparseAdam"), _RULE),
}
"""Names in `torch.optim` → what to write."""


# These are attributes of the class, not a `__getattr__`: where a class has one, Python 3.11 takes five times as long
# for any attribute, and 1.1 to 1.2 times for building a graph.


class SecondName:
  """Another name of a method of tensors; classes do not have it."""

  __slots__ = ("method", "name")

  def __init__(self, name: str, method: str) -> None:
    self.name, self.method = name, method

  def __get__(self, t: Any, kind: type) -> Any:
    if t is None:
      raise AttributeError(f"type object {kind.__name__!r} has no attribute {self.name!r}", name=self.name, obj=kind)
    return getattr(t, self.method)


class Absent:
  """An attribute that there is not: the error says what to write."""

  __slots__ = ("instead", "name")

  def __init__(self, name: str, instead: str) -> None:
    self.name, self.instead = name, instead

  def __get__(self, t: Any, kind: type) -> Any:
    whose = f"type object {kind.__name__!r}" if t is None else f"{kind.__name__!r} object"
    words = f"{whose} has no attribute {self.name!r}. Here: {self.instead}"
    raise AttributeError(words, name=self.name, obj=kind if t is None else t)


def add_names(kind: type) -> frozenset[str]:
  """Gives a class of tensors PyTorch's names; which."""
  made: dict[str, SecondName | Absent] = {name: Absent(name, instead) for name, instead in TENSOR.items()}
  for name, method in ALIASES.items():
    made[name] = SecondName(name, method)
    if hasattr(kind, f"{method}_"):
      made[f"{name}_"] = SecondName(f"{name}_", f"{method}_")
  made |= {f"{name}_": Absent(f"{name}_", f"t = t.{name}(…)") for name in MOVING if f"{name}_" not in made}
  for name, found in made.items():
    setattr(kind, name, found)
  return frozenset(made)


def of_torch(name: str) -> str | None:
  """What to write for `torch.NAME`."""
  if name in TOP:
    return TOP[name]
  Tensor = import_module("tiny_tensor.tensor").Tensor  # by name, here and below: they stand above this module
  if hasattr(Tensor, ALIASES.get(name, name)):
    return f"Tensor.{ALIASES.get(name, name)}"
  return f"dtypes.{name}" if isinstance(getattr(dtypes, name, None), DType) else None


def of_torch_nn(name: str) -> str | None:
  """What to write for `torch.nn.NAME`."""
  if name in NN:
    return NN[name]
  if name.startswith("Lazy"):
    return f"nn.{name[4:]}, with all its sizes"
  if re.search(r"Pad[123]d$", name):
    return "lambda x: x.pad(padding, mode)"
  F = import_module("tiny_tensor.nn.functional")
  snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
  return f"lambda x: nn.functional.{snake}(x, …)" if name != snake and hasattr(F, snake) else None
