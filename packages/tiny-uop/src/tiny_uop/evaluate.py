"""What the elementwise operations compute, on Python values. This is the reference that constant folding and tests use.

Float arithmetic is done in float64 and rounded once to the dtype. For the four operations, square root and the formats
narrower than float64 that is the correctly rounded result (Figueroa, "When is double rounding innocuous?", 1995);
transcendentals are as good as libm.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tiny_uop.dtype import DType, PtrDType, dtypes
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.truncate import Number, from_bits, rounding, to_bits, truncate

if TYPE_CHECKING:
  from tiny_uop.uop import UOp

Value = Number | tuple[Number, ...]
_WORD = 0xFFFFFFFF


def threefry(counter: int, key: int) -> int:
  """Threefry-2x32 with 20 rounds: 64 random bits from a counter and a key.

  Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC'11. The low 32 bits of each operand are
  word 0.
  """
  k0, k1 = key & _WORD, key >> 32 & _WORD
  keys = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)  # the parity constant of Skein
  x0, x1 = (counter + k0) & _WORD, ((counter >> 32) + k1) & _WORD
  for group in range(5):
    for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[group % 2]:
      x0 = (x0 + x1) & _WORD
      x1 = ((x1 << rotation | x1 >> (32 - rotation)) & _WORD) ^ x0
    x0 = (x0 + keys[(group + 1) % 3]) & _WORD
    x1 = (x1 + keys[(group + 2) % 3] + group + 1) & _WORD
  return x1 << 32 | x0


def trunc_div(a: int, b: int) -> int:
  """The quotient of integers, toward zero; of division by 0, 0."""
  quotient = abs(a) // abs(b) if b else 0
  return -quotient if (a < 0) != (b < 0) else quotient


def _trunc_mod(a: int, b: int) -> int:
  # x % 0 is 0 by definition, not a - 0 * b
  return 0 if b == 0 else a - trunc_div(a, b) * b


def _float_div(a: float, b: float) -> float:
  if b != 0:
    return a / b
  return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _ldexp(x: float, n: float) -> float:
  if not math.isfinite(n):
    return math.nan
  try:
    return math.ldexp(x, int(n))
  except OverflowError:
    return math.copysign(math.inf, x)


def _maximum(a: Any, b: Any) -> Any:
  if a != a or b != b:
    return math.nan
  return a if a >= b else b


def _safe(function: Callable[[float], float], at_zero: float = math.nan) -> Callable[[float], float]:
  """`function` with IEEE results where Python raises: NaN outside the domain, infinity where it overflows."""

  def wrapped(x: float) -> float:
    try:
      return function(x)
    except ValueError:
      return at_zero if x == 0 else math.nan
    except OverflowError:
      return math.inf

  return wrapped


def _float_trunc(x: float) -> float:
  return math.copysign(float(math.trunc(x)), x) if math.isfinite(x) else x


# The value of each operation before it is rounded to the dtype. ADD, MUL, MAX, NEG on bool are in `_BOOLEAN`.
_FUNCTIONS: dict[Ops, Callable[..., Any]] = {
  Ops.NEG: operator.neg,
  Ops.EXP2: _safe(math.exp2),
  Ops.LOG2: _safe(math.log2, -math.inf),
  Ops.EXP: _safe(math.exp),
  Ops.LOG: _safe(math.log, -math.inf),
  Ops.SIN: _safe(math.sin),
  Ops.COS: _safe(math.cos),
  Ops.SQRT: _safe(math.sqrt),
  Ops.TRUNC: _float_trunc,
  Ops.ADD: operator.add,
  Ops.SUB: operator.sub,
  Ops.MUL: operator.mul,
  Ops.FDIV: _float_div,
  Ops.LDEXP: _ldexp,
  Ops.FLOORDIV: lambda a, b: a // b if b else 0,
  Ops.FLOORMOD: lambda a, b: a % b if b else 0,
  Ops.TRUNCDIV: trunc_div,
  Ops.TRUNCMOD: _trunc_mod,
  Ops.MAX: _maximum,
  Ops.CMPLT: operator.lt,
  Ops.CMPNE: operator.ne,
  Ops.CMPEQ: operator.eq,
  Ops.AND: operator.and_,
  Ops.OR: operator.or_,
  Ops.XOR: operator.xor,
  Ops.THREEFRY: threefry,
  Ops.WHERE: lambda cond, a, b: a if cond else b,
  Ops.MULACC: lambda a, b, c: a * b + c,
}
_BOOLEAN: dict[Ops, Callable[..., Any]] = {
  Ops.ADD: operator.or_,
  Ops.MUL: operator.and_,
  Ops.MAX: operator.or_,
  Ops.MULACC: lambda a, b, c: (a and b) or c,
}


def _shift(op: Ops, dtype: DType, value: int, count: int) -> int:
  # counts outside [0, bits) are unspecified; here they shift everything out, and do not make numbers of 2**63 bits
  if dtype.kind != "index" and not 0 <= count < dtype.bits:
    return -1 if op is Ops.SHR and value < 0 else 0
  return value << count if op is Ops.SHL else value >> count


def exec_alu(op: Ops, dtype: DType, args: Sequence[Value], source: DType | None = None) -> Value:
  """The value of elementwise `op` of result type `dtype`; `args` already truncated to their own types.

  `source` is the type of the first argument: needed for BITCAST only. Tuples are vectors and go lane by lane; scalars
  among them broadcast. Raises ValueError for an op that is not elementwise, TypeError for BITCAST without `source`.
  """
  function = scalar_function(op, dtype, source if op is Ops.BITCAST else None)
  if tuple not in map(type, args):
    result: Value = function(*args)
    return result
  lanes = max(len(arg) for arg in args if isinstance(arg, tuple))
  columns = [lanes_of(arg, lanes) for arg in args]
  return tuple([function(*row) for row in zip(*columns, strict=True)])


@cache
def scalar_function(op: Ops, dtype: DType, source: DType | None = None) -> Callable[..., Any]:
  """What `exec_alu` does to scalars: for who evaluates the same node many times. Of vector types, what it does to a
  lane. Same errors."""
  if op is Ops.CAST:
    return rounding(dtype)
  if op is Ops.BITCAST:
    if source is None:
      raise TypeError(f"BITCAST to {dtype} needs the type of its source: pass source=")
    return lambda value: from_bits(dtype.scalar(), to_bits(source.scalar(), value))
  function: Callable[..., Any] | None = _BOOLEAN.get(op) if dtype.kind == "bool" else None
  if op in (Ops.SHL, Ops.SHR):
    function = partial(_shift, op, dtype)
  elif function is None:
    function = _FUNCTIONS.get(op)
  if function is None:
    known = ", ".join(sorted(o.name for o in GroupOp.Elementwise))
    raise ValueError(f"{op} is not an elementwise operation; exec_alu knows {known}")
  finish, exact = rounding(dtype), function
  return lambda *args: finish(exact(*args))


def lanes_of(value: Any, count: int) -> tuple[Any, ...]:
  """The lanes of a vector of `count`, whose value may be written as one lane that they all have."""
  return value if isinstance(value, tuple) else (value,) * count


def packed(lanes: Sequence[Any]) -> Any:
  """The value with these lanes: a tuple, or for one lane a scalar."""
  return tuple(lanes) if len(lanes) > 1 else lanes[0]


def identity_of(op: Ops, dtype: DType) -> Number:
  """What a reduction by ADD, MUL or MAX over no elements gives."""
  return dtypes.min(dtype) if op is Ops.MAX else truncate(dtype, int(op is Ops.MUL))


def evaluate(uop: UOp, env: Mapping[UOp, Value] | Mapping[str, Value] | None = None) -> Value:
  """The Python value of `uop`, where `env` gives the values of leaves (VARIABLE, RANGE, SPECIAL, or any node), or of
  variables by name.

  A BIND evaluates to the value it binds unless `env` has its variable. Raises KeyError for a leaf without a value,
  ValueError for a value outside the bounds of its variable and for a node that has no value.
  """
  given: Mapping[Any, Value] = env or {}
  values: dict[UOp, Value] = {}
  for node in uop.toposort:
    key = node.arg[0] if node.op is Ops.VARIABLE and node not in given else node
    value = _checked(node, given[key]) if key in given else _node_value(node, values)
    if value is not None:  # what has none is an error only where something needs it: see `_leaf_error`
      values[node] = value
  if uop in values:
    return values[uop]
  raise _leaf_error(uop, values)


def evaluator(uops: Sequence[UOp]) -> Callable[[Mapping[str, int]], list[Any]]:
  """`evaluate` of several scalar expressions, for values of their variables by name: for who does it many times. Raises
  ValueError for a node other than constants, variables and elementwise operations; what it gives raises as `evaluate`
  does."""
  nodes = dict.fromkeys(node for uop in uops for node in uop.toposort)
  leaves = [node for node in nodes if node.op in (Ops.CONST, Ops.VARIABLE)]
  others = [node for node in nodes if node.op not in (Ops.CONST, Ops.VARIABLE)]
  slots = {node: slot for slot, node in enumerate((*leaves, *others))}
  steps: list[tuple[Callable[..., Any], list[int]]] = []
  for node in others:
    if node.op not in GroupOp.Elementwise or node.dtype.count != 1:
      raise ValueError(f"an expression of variables has no {node.op.name} of dtype {node.dtype}")
    steps.append((scalar_function(node.op, node.dtype, node.src[0].dtype), [slots[s] for s in node.src]))
  known = [leaf.arg for leaf in leaves]
  variables = [leaf for leaf in leaves if leaf.op is Ops.VARIABLE]
  wanted = [slots[uop] for uop in uops]

  def found(values: Mapping[str, int]) -> list[Any]:
    made = [*known]
    for variable in variables:
      if (name := variable.arg[0]) not in values:
        raise _leaf_error(variable, {})
      made[slots[variable]] = _checked(variable, values[name])
    for function, sources in steps:
      made.append(function(*[made[n] for n in sources]))
    return [made[n] for n in wanted]

  return found


def _node_value(node: UOp, values: dict[UOp, Value]) -> Value | None:
  if node.op is Ops.CONST:
    constant: Value = node.arg
    return constant
  if node.op is Ops.BIND:
    return values.get(node.src[0], values[node.src[1]])
  if not node.src or any(s not in values for s in node.src):
    return None
  sources = [values[s] for s in node.src]
  if node.op in GroupOp.Elementwise:
    return exec_alu(node.op, node.dtype, sources, node.src[0].dtype)
  if node.op is Ops.VECTORIZE:
    return tuple([lane for s, u in zip(sources, node.src) for lane in lanes_of(s, u.dtype.count)])
  if node.op is Ops.EXTRACT:
    vector = lanes_of(sources[0], node.src[0].dtype.count)
    picked: Value = packed([vector[lane] for lane in lanes_of(node.arg, 1)])
    return picked
  return None


def _checked(node: UOp, value: Value) -> Value:
  if node.op is Ops.VARIABLE:
    name, low, high = node.arg
    if isinstance(value, tuple) or not low <= value <= high:
      raise ValueError(f"variable {name!r} is {value!r}, outside its bounds [{low}, {high}]")
  return value


def _leaf_error(root: UOp, values: dict[UOp, Value]) -> Exception:
  for node in root.toposort:
    if isinstance(node.dtype, PtrDType) or node.dtype.kind == "void":
      continue  # what is read through a pointer is the value that is missing
    if node not in values:
      if node.op in (Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL):
        return KeyError(f"no value for {node.op.name} {node.arg!r}: put it in env")
      what = f"{node.op.name} of dtype {node.dtype}"
      return ValueError(f"{what} has no Python value: give one in env, or evaluate a part without it")
  return ValueError(f"{root.op.name} of dtype {root.dtype} has no Python value")
