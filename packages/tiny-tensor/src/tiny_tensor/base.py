"""`TensorBase`, under all method families: the UOp of a tensor, its dtype and shape, operands and broadcasting."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, TypeVar, Union, cast
from weakref import ref

from tiny_runtime import Device
from tiny_tensor.live import changed, enter
from tiny_tensor.origins import here, mark
from tiny_tensor.shapes import Shape, broadcast_shape, upper
from tiny_uop import Devices, DType, Ops, UOp, dtypes, prod, same_shape, sint
from tiny_uop.origins import recording

if TYPE_CHECKING:
  import numpy

  from tiny_tensor.custom_kernel import Kernel
  from tiny_tensor.methods.indexing import Entry

Scalar: TypeAlias = bool | int | float
Operand: TypeAlias = Union["TensorBase", bool, int, float, UOp]
DTypeLike: TypeAlias = DType | str | type[bool]
Axis: TypeAlias = int | Sequence[int] | None
Bound: TypeAlias = tuple[sint, sint] | None
T = TypeVar("T", bound="TensorBase")

# What shows the contents of its source, only otherwise arranged.
ALIASES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.EXPAND, Ops.FLIP, Ops.DETACH})


def to_dtype(dtype: DTypeLike) -> DType:
  """A dtype from itself, its name in letters of any case, Python's `bool`, or one of NumPy's. Raises
  ValueError (unknown name) or TypeError, naming the value."""
  if isinstance(dtype, DType) and dtype in dtypes.all:
    return dtype
  if dtype is bool:  # not int and float, which are of 64 bits in NumPy and PyTorch
    return dtypes.bool
  numpy = sys.modules.get("numpy")
  if numpy is not None and (
    isinstance(dtype, numpy.dtype) or (isinstance(dtype, type) and issubclass(dtype, numpy.generic))
  ):
    dtype = str(numpy.dtype(dtype).name)
  if isinstance(dtype, str):
    alias = getattr(dtypes, dtype.lower(), None)
    found = alias if isinstance(alias, DType) else dtypes.parse(dtype)
    if found not in dtypes.all:
      raise ValueError(f"a tensor cannot hold {dtype!r}: expected one of {', '.join(d.name for d in dtypes.all)}")
    return found
  raise TypeError(f"expected a dtype or its name, got {dtype!r}")


def python_number(value: object) -> object:
  """The Python number that a NumPy scalar holds, which then counts as one; anything else as it is.

  An array without axes is no scalar: as every array, it has a dtype that counts.
  """
  numpy = sys.modules.get("numpy")
  if numpy is None or not isinstance(value, numpy.generic):
    return value
  kind = {"b": bool, "i": int, "u": int, "f": float}.get(value.dtype.kind)
  return value if kind is None else kind(value)


def scalar_dtype(value: Scalar, other: DType) -> DType:
  """The dtype of a Python scalar next to a tensor of dtype `other`: it is weak, it only raises the kind."""
  if dtypes.is_float(other):
    return other
  if isinstance(value, bool):
    return other
  if isinstance(value, int):
    return dtypes.default_int if dtypes.is_bool(other) else other
  return dtypes.default_float


def const_uop(value: Scalar, dtype: DType, shape: Shape = (), device: Devices | None = None) -> UOp:
  """A constant of a shape: CONST (which names its device, when it has one) reshaped and expanded."""
  uop = UOp.const(dtype, value)
  if device is not None:
    uop = UOp(Ops.CONST, dtype, (UOp(Ops.DEVICE, dtypes.void, (), device),), uop.arg)
  return uop.filling(shape) if shape else uop


class Copy:
  """Contents of a tensor that is no view, and of its views, in memory of another one until they are written to."""

  moved = False


class TensorBase:
  """A lazily computed array. `uop` is the graph that computes it; methods build graphs and nothing else."""

  __slots__ = ("__weakref__", "_contents", "_entry", "_history", "grad", "requires_grad", "uop")
  uop: UOp
  # The same object in a tensor and its views. Graphs do not tell a view from an equal tensor made independently, since
  # equal nodes are one node and get one buffer; a write has to be seen in views and must not be in the other.
  _contents: object
  _entry: ref[TensorBase]
  grad: Self | None
  requires_grad: bool | None
  _history: bool  # computed from a tensor that requires a gradient
  training: ClassVar[bool] = False
  _recording: ClassVar[bool] = True  # False in `no_grad`
  _narrow: ClassVar[DType | None] = None  # the dtype of `autocast`

  if TYPE_CHECKING:
    # What the families of methods (`methods/`) use of each other, by what it takes and gives. Each is defined in one of
    # them, where all of its signature stands.
    def _of_one(self) -> Self: ...
    def _of_two(self, x: Operand, /) -> Self: ...
    def _of_two_reversed(self, x: Operand, reverse: bool = False) -> Self: ...
    def _reducing(self, axis: Axis = None, keepdim: bool = False) -> Self: ...
    def _reducing_typed(self, axis: Axis = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self: ...
    def _shaped(self, shape: Any = (), *args: Any) -> Self: ...
    def _joined(self, *args: Self, dim: int = 0) -> Self: ...
    def _of_its_own(self, *args: Any, **kwargs: Any) -> Self: ...
    def _several(self, *args: Any, **kwargs: Any) -> tuple[Self, ...]: ...
    def _two(self, *args: Any, **kwargs: Any) -> tuple[Self, Self]: ...
    @classmethod
    def _made(cls, *args: Any, **kwargs: Any) -> Self: ...

    __invert__ = __neg__ = abs = _as_bool = atleast_2d = bitwise_not = ceil = contiguous = cos = cosh = _of_one
    _counted = detach = _formatted = erf = exp = exp2 = expm1 = floor = isnan = log = log1p = logical_not = _of_one
    _has_sign = logsigmoid = _of_one
    neg = _opposite = ravel = reciprocal = rsqrt = sigmoid = sign = sin = sinh = sqrt = square = tanh = trunc = _of_one
    __add__ = __radd__ = __iadd__ = __sub__ = __rsub__ = __isub__ = __mul__ = __rmul__ = __imul__ = _of_two
    __truediv__ = __rtruediv__ = __itruediv__ = __floordiv__ = __rfloordiv__ = __ifloordiv__ = _of_two
    __mod__ = __rmod__ = __imod__ = __pow__ = __rpow__ = __ipow__ = __and__ = __rand__ = __iand__ = _of_two
    __or__ = __ror__ = __ior__ = __xor__ = __rxor__ = __ixor__ = _of_two
    __lshift__ = __rlshift__ = __ilshift__ = __rshift__ = __rrshift__ = __irshift__ = _of_two
    __lt__ = __gt__ = __le__ = __ge__ = eq = ge = ne = maximum = minimum = logaddexp = _of_two
    add = sub = mul = div = floordiv = mod = pow = _of_two_reversed
    bitwise_and = bitwise_or = bitwise_xor = lshift = rshift = _of_two_reversed
    all = any = logsumexp = max = min = _reducing
    mean = prod = sum = _reducing_typed
    expand = reshape = shrink_to = view = flip = permute = repeat = _shaped
    cat = stack = _joined
    empty = full = _make = rand_like = randn_like = _made
    argmax = argsort = bitcast = cast = clamp = clone = cumsum = diagonal = dot = dropout = flatten = _of_its_own
    gather = isclose = isinf = lerp = log_softmax = matmul = movedim = nonzero = pad = realize = _of_its_own
    repeat_interleave = requires_grad_ = roll = round = scatter = scatter_reduce = searchsorted = _of_its_own
    shard_like = shrink = softmax = squeeze = to = transpose = tril = unsqueeze = vector_norm = where = _of_its_own
    _alike = _along = _ascending_keys = _as_float = _bits = _count_up = _dropout = _filled = _of_its_own
    _filled_up = _flat_in = _float_pow = _repeated = _of_its_own
    _gather_axes = _hot = _in_pieces_of = _index_vector = _lying_along = _pad_zeros = _ranked = _reduce = _of_its_own
    _reduced = _select_axis = _softmax_or_zeros = _spaced = _sum_of_products = _view_of = _write_hot = _of_its_own
    meshgrid = split = unravel_index = _several
    _pair = sort = topk = _two

    def __eq__(self, x: object) -> Self: ...  # type: ignore[override]
    def __ne__(self, x: object) -> Self: ...  # type: ignore[override]
    def __getitem__(self, key: Any) -> Self: ...
    def __iter__(self) -> Iterator[Self]: ...
    def __len__(self) -> int: ...
    def __matmul__(self, x: Self) -> Self: ...

    __rmatmul__ = __imatmul__ = __matmul__

    def _check_not_empty(self, what: str, axis: Axis) -> None: ...
    def custom_kernel(self, *lst: Self, fxn: Kernel, grad_fxn: Callable[..., Any] | None = None) -> list[Self]: ...
    @classmethod
    def _invalid_size(cls, what: str, value: Any) -> ValueError: ...
    def item(self) -> Scalar: ...
    def _like(self, kwargs: dict[str, Any]) -> dict[str, Any]: ...
    def numpy(self) -> numpy.ndarray[Any, Any]: ...
    def _own_storage(self) -> None: ...
    def _parse_index(self, key: Any) -> list[Entry]: ...
    def _elements(self) -> tuple[tuple[Any, ...], tuple[int, ...]]: ...
    def _read_copy(self) -> tuple[memoryview, tuple[int, ...]]: ...
    def _shaped_view(self, raw: memoryview, shape: tuple[int, ...]) -> memoryview: ...
    def _with_precision(self) -> tuple[Self, DType]: ...

  @classmethod
  def _wrap(cls, uop: UOp, requires_grad: bool | None = None, history: bool = False) -> Self:
    """A tensor that stands for `uop`, a tensor-level graph."""
    self = object.__new__(cls)
    # as `__setattr__`, without asking for the name
    _set_uop(self, uop)
    _set_requires_grad(self, requires_grad)
    _set_history(self, history)
    _set_grad(self, None)
    _set_contents(self, object())
    enter(self)
    if recording.wanted and here.mark is None:
      mark(uop)
    return self

  def __setattr__(self, name: str, value: object) -> None:
    object.__setattr__(self, name, value)
    if name == "uop":
      changed(self)

  def _begin_life(self) -> None:
    """What every new tensor starts with: contents of its own, and a place among the live tensors."""
    self._contents = object()
    enter(self)
    if recording.wanted:
      mark(self.uop)

  def _derive(self, uop: UOp, *parents: TensorBase) -> Self:
    """The tensor for `uop`, computed from `self` and `parents`, whose need for gradients it inherits."""
    needs = [self.requires_grad, *[p.requires_grad for p in parents]]
    wanted = True in needs and dtypes.is_float(uop.dtype)
    if wanted and not TensorBase._recording:
      uop, wanted, needs = uop.detach(), False, [False]
    known = needs.count(False) == len(needs)
    derived = self._wrap(uop, True if wanted else (False if known else None), wanted)
    while uop is not self.uop and uop.op in ALIASES:
      uop = uop.src[0]
    if uop is self.uop:
      derived._contents = self._contents
    return derived

  def _apart(self) -> Self:
    """The same value as one that was computed, and no view: a write to one of the two is not seen in the other. What a
    method gives where there is nothing to compute.
    """
    same = self._derive(self.uop)
    same._contents = Copy()
    return same

  __hash__ = object.__hash__

  @property
  def dtype(self) -> DType:
    """Element type."""
    return self.uop.dtype

  @property
  def shape(self) -> Shape:
    """Sizes of the axes, ints or symbolic."""
    return self.uop.shape

  @property
  def ndim(self) -> int:
    """Number of axes."""
    return len(self.uop.shape)

  def dim(self) -> int:
    """`ndim`."""
    return self.ndim

  @property
  def device(self) -> Devices:
    """Name of the device that the values are, or will be, on; a tuple of names if they are on several (`shard`)."""
    device = self.uop.device
    return Device.DEFAULT if device is None else device

  def numel(self) -> sint:
    """Number of elements."""
    return prod(self.shape)

  def element_size(self) -> int:
    """Bytes per element."""
    return self.dtype.itemsize

  def nbytes(self) -> int:
    """Bytes of all elements; for symbolic shapes, of the largest."""
    return math.prod(map(upper, self.shape)) * self.dtype.itemsize

  def is_floating_point(self) -> bool:
    """Whether the dtype is a float."""
    return dtypes.is_float(self.dtype)

  def const_like(self, b: Scalar, dtype: DType | None = None) -> Self:
    """A tensor of the same shape, device and (unless given) dtype, filled with the number `b`."""
    return self._wrap(const_uop(b, dtype or self.dtype, self.shape, self.device), False)

  def _operand(self, value: Operand, weak: DType | None = None, shape: Shape = ()) -> Self:
    """`value` as a tensor. A Python scalar takes the dtype that it has next to one of dtype `weak` (default: that of
    `self`), and `shape`; an integer UOp becomes int32.
    """
    if isinstance(value, TensorBase):
      return cast(Self, value)
    if isinstance(value, UOp):
      if value.shape != ():
        raise TypeError(f"an operand that is a UOp must be a scalar, got shape {value.shape}")
      uop = value.cast(dtypes.default_int) if value.dtype == dtypes.index else value
      return self._wrap(uop, False)
    if isinstance(value, (bool, int, float)):
      return self._wrap(const_uop(value, scalar_dtype(value, weak or self.dtype), shape), False)
    if (number := python_number(value)) is not value:
      return self._operand(cast(Operand, number), weak, shape)
    if hasattr(value, "__array_interface__"):
      return type(self)(value, device=self.device)
    raise TypeError(f"expected a Tensor or a number, got {type(value).__name__} {value!r}")

  def broadcast_to(self, shape: Shape) -> Self:
    """The same values repeated along the axes of size 1. Raises ValueError naming both shapes."""
    if self.shape == shape:
      return self
    if len(self.shape) > len(shape) or not same_shape(broadcast_shape(self.shape, shape), shape):
      raise ValueError(f"cannot broadcast shape {self.shape} to {shape}")
    return self._derive(spread(self.uop, shape))

  def _as_dtype(self, dtype: DType) -> Self:
    """Cast without checking names: what the other methods use."""
    return self if self.dtype == dtype else self._derive(self.uop.cast(dtype))

  def _broadcasted(self, *values: Operand, match_dtype: bool = True) -> tuple[Self, ...]:
    """`self` and `values` with one common shape and, unless told otherwise, their promoted dtype."""
    tensors: list[TensorBase] = [self, *[v for v in values if isinstance(v, TensorBase)]]
    weak = dtypes.promote(*[t.dtype for t in tensors])
    operands = together([self, *[self._operand(v, weak, self.shape) for v in values]])
    if match_dtype:
      common = dtypes.promote(*[t.dtype for t in operands])
      operands = [t if t.dtype is common else t._as_dtype(common) for t in operands]
    shapes = [t.shape for t in operands]
    shape = broadcast_shape(*shapes)
    return tuple([t if s == shape else t._derive(spread(t.uop, shape)) for t, s in zip(operands, shapes, strict=True)])

  def alu(self, op: Ops, *others: TensorBase, dtype: DType | None = None) -> Self:
    """An elementwise op over operands that already agree in shape and dtype."""
    uop = UOp(op, dtype or self.dtype, (self.uop, *(o.uop for o in others)))
    return self._derive(uop, *others)


_set_uop, _set_requires_grad, _set_history, _set_grad, _set_contents = [
  TensorBase.__dict__[name].__set__ for name in ("uop", "requires_grad", "_history", "grad", "_contents")
]


def spread(uop: UOp, shape: Shape) -> UOp:
  """A graph repeated to a shape that its own broadcasts to."""
  old = uop.shape
  return uop.reshape((1,) * (len(shape) - len(old)) + old).expand(shape)


def together(tensors: Sequence[T]) -> list[T]:
  """Tensors with constants on the device of the others. Raises ValueError when others are on different devices."""
  if len({t.uop.device for t in tensors}) == 1:
    return list(tensors)
  homes = dict.fromkeys(t.uop.device for t in tensors if t.uop.device is not None and not is_const(t.uop))
  if len(homes) > 1:
    raise ValueError(
      f"tensors are on different devices {sorted(map(str, homes))}: move one with .to(device), or to several devices "
      "with .shard(devices)"
    )
  for home in homes:
    return [t if t.uop.device in (None, home) else t._derive(place_const(t.uop, home)) for t in tensors]
  return list(tensors)


def place_const(uop: UOp, device: Devices) -> UOp:
  """A constant seen through movement ops, on a device."""
  base = uop
  while base.op is not Ops.CONST:
    base = base.src[0]
  return uop.substitute({base: base.with_src((UOp(Ops.DEVICE, dtypes.void, (), device),))})


def is_whole(uop: UOp) -> bool:
  """Whether a graph is all of a BUFFER in order."""
  while uop.op is Ops.RESHAPE:
    uop = uop.src[0]
  return uop.op is Ops.BUFFER


def only_stored(uop: UOp) -> bool:
  """Whether a graph is on a device that runs no kernels: a mapped file, or bytes of this process."""
  return isinstance(uop.device, str) and Device.storage(uop.device) is not None


def is_const(uop: UOp) -> bool:
  """Whether a graph is one constant seen through movement ops."""
  while uop.op in (Ops.RESHAPE, Ops.EXPAND, Ops.PERMUTE, Ops.SHRINK, Ops.FLIP):
    uop = uop.src[0]
  return uop.op is Ops.CONST
