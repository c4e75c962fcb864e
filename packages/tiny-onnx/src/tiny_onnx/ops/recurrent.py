"""RNN, GRU and LSTM: in both directions, with sequences of different lengths, peepholes, clipping, any activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Call, op
from tiny_onnx.values import checked_rank, shape_of
from tiny_tensor import Tensor, dtypes

Activation = Callable[[Tensor], Tensor]

STEPS_BEFORE_COMPUTING = 16
"""Steps in one graph: more of them become slow to schedule."""


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
  """A function by its name, with its parameters."""
  a = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "affine": 1.0, "scaledtanh": 1.0}
  key = name.lower()
  p = a.get(key, 1.0) if alpha is None else alpha
  q = (0.5 if key == "hardsigmoid" else 1.0 if key == "scaledtanh" else 0.0) if beta is None else beta
  known: dict[str, Activation] = {
    "relu": lambda x: x.relu(), "tanh": lambda x: x.tanh(), "sigmoid": lambda x: x.sigmoid(),
    "affine": lambda x: x * p + q, "leakyrelu": lambda x: (x >= 0).where(x, x * p),
    "thresholdedrelu": lambda x: (x >= p).where(x, 0), "scaledtanh": lambda x: (x * q).tanh() * p,
    "hardsigmoid": lambda x: (x * p + q).clamp(0, 1), "elu": lambda x: (x >= 0).where(x, (x.minimum(0).exp() - 1) * p),
    "softsign": lambda x: x / (x.abs() + 1), "softplus": lambda x: x.softplus(),
  }  # fmt: skip
  if key not in known:
    raise ModelError(f"there is no activation {name!r}")
  return known[key]


def activations(call: Call, defaults: Sequence[str], directions: Any) -> list[list[Activation]]:
  """The functions of each direction."""
  names = call["activations"] or [*defaults] * directions
  alphas, betas = list(call["activation_alpha"] or []), list(call["activation_beta"] or [])
  wanted = len(defaults) * directions
  if names == [defaults[0]] * len(names) and len(names) > wanted:
    names = names[:wanted]  # the default of the schema is for two directions
  if len(names) != wanted:
    raise ModelError(f"{wanted} activations were expected, found {names}")
  made = [
    activation(n, alphas[i] if i < len(alphas) else None, betas[i] if i < len(betas) else None)
    for i, n in enumerate(names)
  ]
  return [made[i : i + len(defaults)] for i in range(0, wanted, len(defaults))]


Step = Callable[[Tensor, list[Tensor]], list[Tensor]]
"""A step: (the input's share of all gates, the state) → the state, its first element being the output."""


def run_steps(
  x: Tensor, state: list[Tensor], step: Step, lengths: Tensor | None, backwards: bool
) -> tuple[Tensor, list[Tensor]]:
  """The outputs of all steps (time, batch, hidden), and the last state. `x` is (time, batch, gates)."""
  time = x.shape[0]
  outputs: list[Tensor] = []
  order = range(time - 1, -1, -1) if backwards else range(time)
  for number, t in enumerate(order):
    new = step(x[t], state)
    if lengths is None:
      state = new
      outputs.append(new[0])
    else:
      inside = (lengths > t).reshape(-1, 1)
      state = [inside.where(n, s) for n, s in zip(new, state)]
      outputs.append(inside.where(new[0], 0))
    if (number + 1) % STEPS_BEFORE_COMPUTING == 0 and number + 1 < time:
      state[0].realize(*state[1:], *outputs)
  if backwards:
    outputs.reverse()
  return (outputs[0].stack(*outputs[1:]) if time > 1 else outputs[0].unsqueeze(0)), state


Product = Callable[[Tensor], Tensor]
"""Rows times the weights of one direction."""


def of_directions(weights: Tensor, directions: int) -> list[Tensor]:
  """The weights of each direction. Raises ModelError where they are not (directions, results, terms)."""
  if checked_rank(weights, 3, "weights of (directions, results, terms)")[0] != directions:
    raise ModelError(f"weights of {directions} directions were expected, found shape {tuple(weights.shape)}")
  return [weights[d] for d in range(directions)]


def products(weights: Tensor, directions: int) -> list[Product]:
  """Products with the weights of each direction, which are (directions, results, terms)."""
  return [partial(lambda w, x: x.matmul(w.transpose(0, 1)), of_one) for of_one in of_directions(weights, directions)]


def recurrent(
  call: Call, x: Tensor, inputs: Sequence[Product], hidden: Any, bias: Tensor | None, lengths: Tensor | None,
  states: Sequence[Tensor | None], make: Callable[[int, Tensor | None], Step], gates: int, split_bias: bool,
) -> tuple[Tensor, list[Tensor]]:  # fmt: skip
  """What RNN, GRU and LSTM share: directions, layout, the products of all inputs at once.

  `make(direction, recurrent bias)` gives the step. With `split_bias` the recurrent bias is not added to the input's.
  """
  checked_rank(x, 3, "an input of (steps, batches, numbers)")
  batch_first = bool(call["layout"])
  if batch_first:
    x, states = x.transpose(0, 1), [None if s is None else s.transpose(0, 1) for s in states]
  directions = len(inputs)
  direction = (
    call.get("direction", "forward").lower().replace("foward", "forward")
  )  # so the default of GRU's version 1 is written
  if directions != (2 if direction == "bidirectional" else 1) or direction not in (
    "forward",
    "reverse",
    "bidirectional",
  ):
    raise ModelError(f"direction {direction!r} does not go with weights of {directions} directions")
  outputs: list[Tensor] = []
  ends: list[list[Tensor]] = []
  ends_in = None if lengths is None else lengths.cast(dtypes.int32)
  for d in range(directions):
    rows = inputs[d](x)
    back = None
    if bias is not None:
      front, back = bias[d][: gates * hidden], bias[d][gates * hidden :]
      rows = rows + (front if split_bias else front + back)
    if x.shape[0] > STEPS_BEFORE_COMPUTING:
      rows = rows.contiguous()
    start = [Tensor.zeros(x.shape[1], hidden, dtype=x.dtype) if s is None else s[d] for s in states]
    made, end = run_steps(rows, start, make(d, back), ends_in, direction == "reverse" or d == 1)
    outputs.append(made)
    ends.append(end)
  whole = outputs[0].stack(*outputs[1:], dim=1) if directions > 1 else outputs[0].unsqueeze(1)
  last = [
    ends[0][i].stack(*[e[i] for e in ends[1:]]) if directions > 1 else ends[0][i].unsqueeze(0)
    for i in range(len(states))
  ]
  if batch_first:
    return whole.permute(2, 0, 1, 3), [s.transpose(0, 1) for s in last]
  return whole, last


def clipped(call: Call) -> Activation:
  limit = call["clip"]
  return (lambda x: x) if not limit else lambda x: x.clamp(-limit, limit)


def last_axis(x: Tensor, count: int) -> list[Tensor]:
  """Equal parts of the last axis."""
  size = x.shape[-1] // count
  return [x[..., i * size : (i + 1) * size] for i in range(count)]


@op("RNN")
def rnn(
  call: Call, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
  h: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
  count = shape_of(w)[0]
  functions, clip, again = activations(call, ["Tanh"], count), clipped(call), products(r, count)

  def make(d: int, back: Tensor | None) -> Step:
    return lambda row, state: [functions[d][0](clip(row + again[d](state[0])))]

  outputs, (last,) = recurrent(call, x, products(w, count), r.shape[-1], bias, lengths, [h], make, 1, False)
  return outputs, last


@op("GRU")
def gru(
  call: Call, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
  h: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
  count = shape_of(w)[0]
  functions, clip, inputs = activations(call, ["Sigmoid", "Tanh"], count), clipped(call), products(w, count)
  again = of_directions(r, count)
  hidden, reset_after = r.shape[-1], bool(call["linear_before_reset"])

  def make(d: int, back: Tensor | None) -> Step:
    (f, g), rd = functions[d], again[d]
    gates, new = rd[: 2 * hidden].transpose(0, 1), rd[2 * hidden :].transpose(0, 1)
    gates_bias = 0 if back is None else back[: 2 * hidden]
    new_bias: Any = 0 if back is None else back[2 * hidden :]

    def step(row: Tensor, state: list[Tensor]) -> list[Tensor]:
      before = state[0]
      both = f(clip(row[..., : 2 * hidden] + before.matmul(gates) + gates_bias))
      z, reset = last_axis(both, 2)
      inner = reset * (before.matmul(new) + new_bias) if reset_after else (reset * before).matmul(new) + new_bias
      candidate = g(clip(row[..., 2 * hidden :] + inner))
      return [(1 - z) * candidate + z * before]

    return step

  outputs, (last,) = recurrent(call, x, inputs, hidden, bias, lengths, [h], make, 3, True)
  return outputs, last


@op("LSTM")
def lstm(
  call: Call, x: Tensor, w: Tensor, r: Tensor, bias: Tensor | None = None, lengths: Tensor | None = None,
  h: Tensor | None = None, c: Tensor | None = None, peepholes: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
  return long_short(
    call, x, products(w, shape_of(w)[0]), products(r, shape_of(w)[0]), r.shape[-1], bias, lengths, h, c, peepholes
  )


def long_short(
  call: Call, x: Tensor, inputs: Sequence[Product], again: Sequence[Product], size: Any, bias: Tensor | None,
  lengths: Tensor | None, h: Tensor | None, c: Tensor | None, peepholes: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
  """An LSTM of `size` hidden numbers with these products of the inputs and of the state."""
  functions, clip = activations(call, ["Sigmoid", "Tanh", "Tanh"], len(inputs)), clipped(call)
  coupled = bool(call["input_forget"])

  def make(d: int, back: Tensor | None) -> Step:
    f, g, last = functions[d]
    look = None if peepholes is None else last_axis(peepholes[d], 3)

    def step(row: Tensor, state: list[Tensor]) -> list[Tensor]:
      before, cell = state
      i, o, forget, new = last_axis(row + again[d](before), 4)
      if look is not None:
        i, forget = i + look[0] * cell, forget + look[2] * cell
      i = f(clip(i))
      forget = 1 - i if coupled else f(clip(forget))
      cell = forget * cell + i * g(clip(new))
      if look is not None:
        o = o + look[1] * cell
      return [f(clip(o)) * last(cell), cell]

    return step

  outputs, (hidden, cell) = recurrent(call, x, inputs, size, bias, lengths, [h, c], make, 4, False)
  return outputs, hidden, cell
