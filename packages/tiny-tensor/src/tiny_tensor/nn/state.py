"""The tensors of a model by name, and the files they are kept in."""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from tiny_runtime import part_of
from tiny_tensor.pytree import children_of
from tiny_tensor.tensor import Tensor
from tiny_uop import UOp, dtypes
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_tensor.io.archives import tar_extract, zip_extract
  from tiny_tensor.io.files import TensorIO
  from tiny_tensor.io.ggml import GGMLBlocks, ggml_data_to_tensor
  from tiny_tensor.io.gguf import gguf_blocks, gguf_load
  from tiny_tensor.io.npy import npy_load, npy_save, npz_load, npz_save
  from tiny_tensor.io.safetensors import safe_load, safe_load_metadata, safe_save
  from tiny_tensor.io.torch_file import torch_load

__all__ = [
  "GGMLBlocks", "Slab", "TensorIO", "get_parameters", "get_state_dict", "ggml_data_to_tensor", "gguf_blocks",
  "gguf_load", "load_state_dict", "npy_load", "npy_save", "npz_load", "npz_save", "safe_load", "safe_load_metadata",
  "safe_save", "tar_extract", "torch_load", "zip_extract",
]  # fmt: skip

# a program reads files of one format, and each is imported when it does
_NAMES = {
  "archives": ("tar_extract", "zip_extract"),
  "files": ("TensorIO",),
  "ggml": ("GGMLBlocks", "ggml_data_to_tensor"),
  "gguf": ("gguf_blocks", "gguf_load"),
  "npy": ("npy_load", "npy_save", "npz_load", "npz_save"),
  "safetensors": ("safe_load", "safe_load_metadata", "safe_save"),
  "torch_file": ("torch_load",),
}
__getattr__ = lazy_names(__name__, **{name: f"..io.{module}" for module, names in _NAMES.items() for name in names})


def get_state_dict(obj: object, prefix: str = "", tensor_type: type = Tensor) -> dict[str, Tensor]:
  """All tensors that `obj` holds, by path: `{"layers.0.weight": Tensor, …}`, in the order of definition.

  Looks into attributes, mappings, lists, tuples and named tuples. A tensor held twice is listed under both names.
  """
  found: dict[str, Tensor] = {}
  open_objects: set[int] = set()  # on the way from the root: an object that holds itself is not entered again

  def visit(value: object, path: str) -> None:
    if isinstance(value, tensor_type):
      found[path] = value  # type: ignore[assignment]
    elif id(value) not in open_objects:
      open_objects.add(id(value))
      for name, child in children_of(value):
        visit(child, f"{path}.{name}" if path else name)
      open_objects.discard(id(value))

  visit(obj, prefix.strip("."))
  return found


class Slab:
  """Tensors side by side in a few large pieces of memory.

  Devices give large buffers large pages. The weights of a small model, each in memory of its own, lie in more small
  pages than a TLB knows, and a step that reads all of them once looks up each: with a language model of 135 million
  parameters (matrices of 0.2 to 1.1 MB) a token takes 0.8 of the time if they are in a slab, on one thread of a Zen 4
  in a virtual machine.
  """

  ALIGNMENT = 256
  """Bytes, as memory of its own has."""

  def __init__(self, nbytes: int = 32 << 20) -> None:
    """`nbytes`: of a piece. Tensors of an eighth of that and more stay alone."""
    if nbytes < self.ALIGNMENT:
      raise ValueError(f"a slab has pieces of {self.ALIGNMENT} bytes or more, not {nbytes}")
    self.nbytes = nbytes
    self._pieces: dict[str, tuple[UOp, int]] = {}
    """By device: the one that has room, and how many bytes of it are taken."""

  def put(self, tensor: Tensor) -> Tensor:
    """A copy of a tensor in the slab, without history, computed at once. The tensor itself if it is large, empty or on
    several devices. A piece is freed with its tensors, and the one that has room not before the slab. Raises
    OutOfMemory."""
    device, size = tensor.device, -(-int(tensor.nbytes()) // self.ALIGNMENT) * self.ALIGNMENT
    if not isinstance(device, str) or not 0 < size < self.nbytes // 8:
      return tensor
    piece, taken = self._pieces.get(device, (None, 0))
    if piece is None or taken + size > self.nbytes:
      piece, taken = UOp.new_buffer(device, self.nbytes, dtypes.uint8), 0
    self._pieces[device] = piece, taken + size
    memory = part_of(piece, taken, int(tensor.numel()), tensor.dtype)
    return Tensor._wrap(memory.reshape(tensor.shape)).assign(tensor.detach()).realize()


def get_parameters(obj: object) -> list[Tensor]:
  """All tensors that `obj` holds: the values of `get_state_dict`."""
  return list(get_state_dict(obj).values())


def _fit(name: str, data: Any, target: Tensor) -> Tensor:
  """`data` in the place of `target`: on its device and in its floating point type."""
  value = data if isinstance(data, Tensor) else Tensor(data)
  # a scalar is kept as () by some writers and as (1,) by others
  if (value.shape or (1,)) != (target.shape or (1,)):
    raise ValueError(f"shape mismatch for {name!r}: the model has {target.shape}, the state dict has {value.shape}")
  if value.dtype is not target.dtype and not (dtypes.is_float(value.dtype) and dtypes.is_float(target.dtype)):
    raise TypeError(
      f"dtype mismatch for {name!r}: the model has {target.dtype.name}, the state dict has {value.dtype.name}; "
      "only floating point types are converted, cast the entry first"
    )
  return value.reshape(target.shape).shard_like(target).cast(target.dtype)


def load_state_dict(
  model: object,
  state_dict: MutableMapping[str, Any],
  strict: bool = True,
  verbose: bool = True,
  consume: bool = False,
  realize: bool = True,
) -> list[Tensor]:
  """Assigns the tensors of `state_dict` to those of the same name in `model`, and gives the latter back. What `Tensor`
  takes will do as a tensor: arrays of NumPy, tensors of PyTorch.

  Everything is checked before anything is assigned, so an error leaves the model as it was. Raises KeyError where a
  name is missing on either side (with `strict`; an extra `num_batches_tracked` is left out), ValueError for another
  shape, TypeError for another dtype (floating point types are converted to the model's). `consume`
  empties `state_dict` on the way; `verbose` prints one line about what was loaded; `realize` copies the values now.
  """
  targets = get_state_dict(model)
  if strict:
    # PyTorch keeps a counter with every batch normalisation, which nothing needs for what it computes
    given = {name for name in state_dict if name in targets or name.rpartition(".")[2] != "num_batches_tracked"}
    missing, extra = sorted(targets.keys() - given), sorted(given - targets.keys())
    if missing or extra:
      raise KeyError(
        f"state dict does not match the model: missing {_some(missing)}; not in the model {_some(extra)}; "
        "strict=False loads what both have"
      )
  common = {name: t for name, t in targets.items() if name in state_dict}
  values = {name: _fit(name, state_dict[name], t) for name, t in common.items()}
  if consume:
    state_dict.clear()
  for name, t in common.items():
    t.assign(values.pop(name))
    if realize:  # one by one: the values of all at once may not fit in memory
      t.realize()
  if verbose:
    count, size = len(common), sum(t.numel() * t.dtype.itemsize for t in common.values())
    print(f"loaded {count} tensors, {size / 1e6:.2f} MB")
  return list(common.values())


def _some(names: list[str], most: int = 8) -> str:
  shown = ", ".join(names[:most]) or "none"
  return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
