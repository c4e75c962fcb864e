"""Products of activations with quantised weights.

The sum over a row is one over its blocks, and within a block one of products of integers: activations are rounded to 8
bits, 32 neighbours with one scale (as ggml's `Q8_1`). With `w = s * c + o` for a code `c`, and `x ≈ d * q`:

    Σ w x  ≈  Σ over blocks of  s * d * Σ c q  +  o * d * Σ q

`Σ c q` is what dot-product instructions of bytes do; `d * Σ q` belongs to the activations. Where rounding to 8 bits
takes too much, a second integer says what it left: `x ≈ d * (254 q + r)`, for as many bytes of weights.
"""

from __future__ import annotations

import functools
import math
from functools import lru_cache

from tiny_llm.quantised.packing import BLOCK, LANES, WORDS, Codes, Packed, Plan, byte
from tiny_tensor import Tensor, dtypes
from tiny_uop import AxisType, DType, KernelInfo, Ops, UOp
from tiny_uop.graph import chain
from tiny_uop.records import dataclass

__all__ = ["Rounded", "exact_product", "product", "repeated", "rounded"]

_ROUND = 12582912.0  # 1.5 * 2**23: what is added to it is rounded to an integer, the low bits of the sum
_ROUND_BITS = 0x4B400000
_FINER = 254
"""Steps of a second integer in one of the first: what rounding leaves is half a step at most, 127 of its own."""


TILE = 4
"""Tokens that products take together where the number of tokens is a variable."""


def tiles(last: UOp) -> UOp:
  """How many tiles tokens up to the `last` are in."""
  return last // TILE + 1


@dataclass(frozen=True)
class Rounded:
  """Activations `(tokens, columns)` in 8 bits, or in two such terms: `words` uint32 `(tokens, blocks, 8 * terms)`,
  `scales` `(tokens, blocks)` and `totals` (scale times sum of the integers) `(tokens, blocks, groups)` float32. With a
  variable `last`, only the tiles of tokens up to that one have values."""

  words: Tensor
  scales: Tensor
  totals: Tensor
  last: UOp | None


def rounded(
  x: Tensor, weight: Tensor | None = None, epsilon: float = 0.0, groups: int = 1, last: UOp | None = None, *,
  terms: int = 1,
) -> Rounded:  # fmt: skip
  """Activations in 8 bits, in one kernel. With a `weight` they are normalised by their root mean square first.

  `groups`: for how many parts of a block of 32 sums are wanted. `last`: a variable, the last token that counts: values
  and products are made of the tiles up to its own. `terms`: 1, or 2 for a second integer of 8 bits, which makes the
  error 254 times smaller.
  """
  tokens, columns = (int(n) for n in x.shape)
  blocks = columns // BLOCK
  made = [
    Tensor.empty(tokens, blocks, WORDS * terms, dtype=dtypes.uint32, device=x.device),
    Tensor.empty(tokens, blocks, dtype=dtypes.float32, device=x.device),
    Tensor.empty(tokens, blocks, groups, dtype=dtypes.float32, device=x.device),
  ]
  given = [x.contiguous()] if weight is None else [x.contiguous(), weight]
  kernel = _round_kernel(tokens, columns, groups, weight is not None, epsilon, last, terms)
  words, scales, totals = made[0].custom_kernel(*made[1:], *given, fxn=lambda *_: kernel)[:3]
  return Rounded(words, scales, totals, last)


@lru_cache(maxsize=256)
def _round_kernel(
  tokens: int, columns: int, groups: int, weighted: bool, epsilon: float, last: UOp | None, terms: int
) -> UOp:  # fmt: skip
  """The kernel of `rounded`, over words, scales, totals, activations and weights."""
  blocks, size = columns // BLOCK, BLOCK // groups
  words = UOp.param(0, dtypes.uint32.ptr(tokens * blocks * WORDS * terms))
  scales, totals = (UOp.param(n, dtypes.float32.ptr(tokens * blocks * g)) for n, g in ((1, 1), (2, groups)))
  x, weights = (UOp.param(n, dtypes.float32.ptr(size)) for n, size in ((3, tokens * columns), (4, columns)))
  count = tokens if last is None else tiles(last) * TILE
  row, block, group, word = (UOp.range(n, place) for place, n in enumerate((count, blocks, groups, WORDS)))
  inner, member, column = (UOp.range(n, 4 + place, AxisType.REDUCE) for place, n in enumerate((BLOCK, size, columns)))

  def value(place: UOp | int) -> UOp:
    index = block * BLOCK + place
    plain = x.index(row * columns + index).load()
    return plain * weights.index(index).load() if weighted else plain

  first = value(inner)
  most = first.alu(Ops.MAX, first * -1.0).reduce(Ops.MAX, inner)
  factor = (most > 0).where(most.reciprocal() * 127.0, 0.0)
  scale = most * (1 / 127 if terms == 1 else 1 / 127 / _FINER)
  if weighted:
    number = x.index(row * columns + column).load()
    square = (number * number).reduce(Ops.ADD, column)
    scale = scale * (square * (1 / columns) + epsilon).sqrt().reciprocal()

  def integers(place: UOp) -> list[UOp]:
    """The terms of a number."""
    number, made = value(place) * factor, list[UOp]()
    for _ in range(terms):
      made.append((number + _ROUND).bitcast(dtypes.int32) - _ROUND_BITS)
      number = (number - made[-1].cast(dtypes.float32)) * _FINER
    return made

  total = functools.reduce(_finer, integers(group * size + member)).reduce(Ops.ADD, member).cast(dtypes.float32) * scale
  packed = [UOp.const(dtypes.uint32, 0)] * terms
  for place in range(4):
    for n, integer in enumerate(integers(word * 4 + place)):
      packed[n] = packed[n] | (integer.bitcast(dtypes.uint32) & 255) << (8 * place)
  at = row * blocks + block
  written = [words.index((at * terms + n) * WORDS + word).store(one) for n, one in enumerate(packed)]
  stores = (
    UOp.group(*written).end(word),
    scales.index(at).store(scale),
    totals.index(at * groups + group).store(total).end(group),
  )
  return UOp.sink(UOp.group(*stores).end(block).end(row), arg=KernelInfo("round_activations"))


def product(
  x: Rounded, w: Packed, *, gate: Packed | None = None, added: Tensor | None = None, chosen: Tensor | None = None
) -> Tensor:
  """`x @ w.T` for rounded activations, float32 `(tokens, rows)`, by products of integers, in one kernel.

  With a `gate`, a matrix like `w`, it is `silu(x @ gate.T) * (x @ w.T)`; what is `added` has the shape of the result.
  With `chosen`, int32 `(tokens * n,)`, `w` is several matrices of `w.rows`, and row i of the result is the product of
  token i // n with matrix `chosen[i]`.
  """
  tokens, blocks, groups = (int(n) for n in x.totals.shape)
  lanes = int(w.parts[0].shape[0]) * LANES
  if added is not None and lanes != w.rows:
    return product(x, w, gate=gate) + added
  matrices = [w] if gate is None else [w, gate]
  parts = tuple([(part.dtype, int(part.shape[2]), blocks // int(part.shape[1])) for part in w.parts])
  each, count = 0, 1
  if chosen is not None:
    count, each, lanes = lanes // w.rows, int(chosen.shape[0]) // tokens, w.rows
    tokens *= each
  last = None if chosen is not None else x.last
  terms = int(x.words.shape[2]) // WORDS
  kernel = _product_kernel(
    w.plan, parts, tokens, blocks, lanes // LANES, gate is not None, added is not None, count, each, last, terms
  )
  given = [x.words, x.scales, x.totals, *[part for m in matrices for part in m.parts]]
  given += [] if added is None else [added.contiguous()]
  given += [] if chosen is None else [chosen.contiguous()]
  out = Tensor.empty(tokens, lanes, dtype=dtypes.float32, device=x.words.device)
  return out.custom_kernel(*given, fxn=lambda *_: kernel)[0][:, : w.rows]


@lru_cache(maxsize=256)
def _product_kernel(
  plan: Plan, parts: tuple[tuple[DType, int, int], ...], tokens: int, blocks: int, rows: int, gated: bool, added: bool,
  count: int, each: int, last: UOp | None, terms: int,
) -> UOp:  # fmt: skip
  """The kernel of `product`, over the result, words, scales and totals of activations, and parts of the matrices, whose
  types, words of a block, and blocks that have one in common, are `parts`. `each`: how many of `count` matrices are
  chosen for each row of activations; 0 if there is one matrix. With `last`, weights are read once for a tile of
  tokens."""
  if last is None:
    row, high, lane = UOp.range(tokens, 0), UOp.range(rows, 1), UOp.range(LANES, 2)
    places, loops = [row], (row, high, lane)
  else:
    high, tile, lane = UOp.range(rows, 0), UOp.range(tiles(last), 1), UOp.range(LANES, 2)
    places, loops = [tile * TILE + n for n in range(TILE)], (high, tile, lane)
  read = tokens // max(each, 1)
  sizes = [(dtypes.float32, tokens * rows * LANES), (dtypes.uint32, read * blocks * WORDS * terms)]
  sizes += [(dtypes.float32, read * blocks), (dtypes.float32, read * blocks * plan.groups)]
  of_matrix = [(dtype, count * rows * blocks // shared * words * LANES) for dtype, words, shared in parts]
  sizes += of_matrix * (2 if gated else 1)
  sizes += [(dtypes.float32, tokens * rows * LANES)] if added else []
  sizes += [(dtypes.int32, tokens)] if each else []
  memory = [UOp.param(n, dtype.ptr(size)) for n, (dtype, size) in enumerate(sizes)]
  first = memory[-1].index(row).load().maximum(0).minimum(count - 1).cast(dtypes.index) * rows + high if each else high

  def whole(matrix: list[UOp], number: int) -> list[UOp]:
    """A row of a matrix times each of the rows of activations, in a loop of its own: two matrices at once need more
    registers than there are."""
    block = UOp.range(blocks, number, AxisType.REDUCE)
    taken = [
      [
        part.index(((first * (blocks // shared) + block // shared) * count + n) * LANES + lane).load()
        for n in range(count)
      ]
      for part, (_, count, shared) in zip(matrix, parts)
    ]
    codes = plan.codes(taken)
    dots = [_dot(plan, codes, memory, row // max(each, 1) * blocks + block, terms) for row in places]
    return [dot.reduce(Ops.ADD, block) for dot in dots]

  values, given = whole(memory[4 : 4 + len(parts)], 3), len(parts)
  if gated:
    gates = whole(memory[4 + given : 4 + 2 * given], 4)
    values = [v * g * ((g * -math.log2(math.e)).exp2() + 1.0).reciprocal() for v, g in zip(values, gates)]
  stores = []
  for row, value in zip(places, values):
    place = (row * rows + high) * LANES + lane
    value = memory[4 + (1 + gated) * len(parts)].index(place).load() + value if added else value
    stores.append(memory[0].index(place).store(value))
  return UOp.sink(UOp.group(*stores).end(*loops), arg=KernelInfo("quantised_product"))


def _finer(first: UOp, second: UOp) -> UOp:
  """A first and a second integer in steps of the second."""
  return first * _FINER + second


def _dot(plan: Plan, codes: Codes, memory: list[UOp], at: UOp, terms: int) -> UOp:
  """A block of a matrix times one of activations."""
  size, result = WORDS // plan.groups, None
  step = memory[2].index(at).load()
  for group, (scale, offset) in enumerate(codes.groups):
    sums = []
    for term in range(terms):
      products = [
        # a dot product of four bytes: the code generator sees it in this form
        byte(codes.words[n], place).cast(dtypes.int32) * byte(word, place).bitcast(dtypes.int8).cast(dtypes.int32)
        for n in range(group * size, (group + 1) * size)
        for word in [memory[1].index((at * terms + term) * WORDS + n).load()]
        for place in range(4)
      ]
      sums.append(chain(Ops.ADD, products))
    scaled = functools.reduce(_finer, sums).cast(dtypes.float32) * step
    total = memory[3].index(at * plan.groups + group).load()
    part: UOp = scale * (scaled + total * offset) if isinstance(offset, float) else scale * scaled + offset * total
    result = part if result is None else result + part
  assert result is not None
  return result


def exact_product(x: Tensor, w: Packed, chosen: Tensor | None = None) -> Tensor:
  """`x @ w.T` for activations `(tokens, columns)`, in float32. With `chosen` as `product`."""
  if int(x.shape[0]) > FEW and chosen is None:
    return x @ w.numbers().contiguous().T  # a panel: each number is made once for all tokens
  tokens, blocks = int(x.shape[0]), w.columns // BLOCK
  x, codes = x.reshape(tokens, 1, blocks, BLOCK, 1), w.codes()
  if chosen is not None:
    x = repeated(x, chosen)
    codes, tokens = w.chosen(chosen), int(chosen.shape[0])
  size = len(codes.words) // len(codes.groups)
  result: Tensor | None = None
  for group, (scale, offset) in enumerate(codes.groups):
    total: Tensor | None = None
    for place in range(group * size, (group + 1) * size):
      for n in range(4):
        code = byte(codes.words[place], n).cast(dtypes.float32)
        code = code + offset if isinstance(offset, float) else scale * code + offset
        term = code * x[:, :, :, place * 4 + n]
        total = term if total is None else total + term
    assert total is not None
    part = scale * total if isinstance(offset, float) else total
    result = part if result is None else result + part
  assert result is not None
  return result.sum(2).reshape(tokens, -1)[:, : w.rows]


def repeated(x: Tensor, chosen: Tensor) -> Tensor:
  """Activations `(tokens, …)`, each as often as matrices are `chosen` for it."""
  each = int(chosen.shape[0]) // int(x.shape[0])
  whole: Tensor = x.unsqueeze(1).expand(-1, each, *x.shape[1:]).reshape(-1, *x.shape[1:])
  return whole


FEW = 4
"""Tokens up to which numbers are made anew for each product."""
