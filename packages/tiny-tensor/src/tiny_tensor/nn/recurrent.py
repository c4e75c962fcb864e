"""Recurrent cells."""

from collections.abc import Callable

from tiny_tensor.nn.module import Module
from tiny_tensor.nn.shared import uniform
from tiny_tensor.tensor import Tensor


class LSTMCell(Module):
  """One step of a long short-term memory (Hochreiter & Schmidhuber, 1997).

  x `(batch, input_size)` and optionally (h, c), each `(batch, hidden_size)`, → the new (h, c). The gates lie
  in the order input, forget, cell, output along the first axis of `weight_ih (4 hidden, input)`, `weight_hh (4 hidden,
  hidden)` and the biases.
  """

  def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
    self.hidden_size = hidden_size
    self.weight_ih = uniform((4 * hidden_size, input_size), hidden_size)
    self.weight_hh = uniform((4 * hidden_size, hidden_size), hidden_size)
    self.bias_ih: Tensor | None = Tensor.zeros(4 * hidden_size).contiguous() if bias else None
    self.bias_hh: Tensor | None = Tensor.zeros(4 * hidden_size).contiguous() if bias else None

  def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    if hc is None:
      hc = (Tensor.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device),) * 2
    gates = x.linear(self.weight_ih.transpose(), self.bias_ih) + hc[0].linear(self.weight_hh.transpose(), self.bias_hh)
    return _lstm(gates, hc[1])


def _lstm(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
  """The next h and c."""
  i, f, g, o = gates.chunk(4, -1)
  c = f.sigmoid() * c + i.sigmoid() * g.tanh()
  return o.sigmoid() * c.tanh(), c


PANEL = 32
"""Rows of a weight side by side in a panel: two vectors or more on all processors, a warp of a GPU."""
MANY_STEPS = 8
"""Steps of a sequence from which on it pays to lay out a weight for them."""


def _product(weight: Tensor, steps: int) -> Callable[[Tensor], Tensor]:
  """A function from a hidden state `(batch, hidden)` to its product with a weight `(rows, hidden)`, `(batch, rows)`.

  Each of many steps reads the weight from front to back, if it has been laid out in panels `(hidden, 32)` before.
  """
  rows, hidden = weight.shape
  if steps < MANY_STEPS or rows % PANEL:
    return lambda h: h.dot(weight.transpose())
  panels = weight.reshape(rows // PANEL, PANEL, hidden).transpose(1, 2).contiguous()
  return lambda h: h.unsqueeze(0).dot(panels).transpose(0, 1).reshape(-1, rows)


class _Recurrent(Module):
  """Layers of cells along a sequence. A cell is a subclass that defines `gates` (rows of a weight per hidden unit),
  `states` (how many tensors it hands on) and `cell`.

  x `(length, batch, input_size)`, with `batch_first` `(batch, length, input_size)`, → the last layer's hidden states at
  each step `(…, directions · hidden_size)` and the last states of each layer `(layers · directions, batch,
  hidden_size)`. Weights have PyTorch's names: `weight_ih_l0`, … , with `_reverse` those of the way back.
  """

  gates, states = 1, 1

  def __init__(
    self,
    input_size: int,
    hidden_size: int,
    num_layers: int = 1,
    bias: bool = True,
    batch_first: bool = False,
    dropout: float = 0.0,
    bidirectional: bool = False,
  ) -> None:
    self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
    self.batch_first, self.dropout = batch_first, dropout
    self.ways = ("", "_reverse") if bidirectional else ("",)
    rows = self.gates * hidden_size
    for layer in range(num_layers):
      width = hidden_size * len(self.ways) if layer else input_size
      for way in self.ways:
        name = f"_l{layer}{way}"
        setattr(self, "weight_ih" + name, uniform((rows, width), hidden_size))
        setattr(self, "weight_hh" + name, uniform((rows, hidden_size), hidden_size))
        if bias:
          setattr(self, "bias_ih" + name, uniform((rows,), hidden_size))
          setattr(self, "bias_hh" + name, uniform((rows,), hidden_size))

  def cell(self, x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next states, the hidden one first, from what the input and the hidden state give each gate."""
    raise NotImplementedError(f"{type(self).__name__} does not define cell()")

  def pass_over(self, x: Tensor, name: str, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer one way: the hidden states `(length, batch, hidden)` and the last states."""
    into, across = ((getattr(self, f"weight_{w}{name}"), getattr(self, f"bias_{w}{name}", None)) for w in ("ih", "hh"))
    # of all steps at once; only the rest has to wait for the step before
    given = x.linear(into[0].transpose(), into[1]).contiguous()
    seen = []
    steps = range(int(x.shape[0]))
    product = _product(across[0], len(steps))
    for t in reversed(steps) if name.endswith("_reverse") else steps:
      handed = product(state[0]) if across[1] is None else product(state[0]) + across[1]
      state = tuple(s.contiguous() for s in self.cell(given[t], handed, state))
      seen.append(state[0])
    return Tensor.stack(*(seen[::-1] if name.endswith("_reverse") else seen)), state

  def run(self, x: Tensor, start: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All layers: the last one's hidden states, and the last states of all."""
    if x.ndim != 3 or x.shape[-1] != self.input_size or 0 in x.shape:
      raise ValueError(
        f"{type(self).__name__} expects a sequence, a batch and {self.input_size} features, got shape {x.shape}"
      )
    x = x.transpose(0, 1) if self.batch_first else x
    count = self.num_layers * len(self.ways)
    shape = (count, int(x.shape[1]), self.hidden_size)
    if start is None:
      start = (Tensor.zeros(*shape, dtype=x.dtype, device=x.device),) * self.states
    if wrong := [s.shape for s in start if s.shape != shape]:
      raise ValueError(f"{type(self).__name__} starts from states of shape {shape}, got {wrong[0]}")
    last: list[tuple[Tensor, ...]] = []
    for layer in range(self.num_layers):
      x = x.dropout(self.dropout) if layer else x
      both = []
      for way in self.ways:
        seen, state = self.pass_over(x, f"_l{layer}{way}", tuple(s[len(last)] for s in start))
        both.append(seen)
        last.append(state)
      x = Tensor.cat(*both, dim=-1)
    ends = tuple(Tensor.stack(*states) for states in zip(*last, strict=True))
    return (x.transpose(0, 1) if self.batch_first else x), ends


class RNN(_Recurrent):
  """h ← tanh(W x + U h + b) (Elman, 1990). Call with x and optionally the first h → (h at each step, the last h). See
  `_Recurrent` for shapes.
  """

  def cell(self, x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next h."""
    return ((x + h).tanh(),)

  def __call__(self, x: Tensor, h: Tensor | None = None) -> tuple[Tensor, Tensor]:
    seen, ends = self.run(x, None if h is None else (h,))
    return seen, ends[0]


class GRU(RNN):
  """Gated recurrent units (Cho et al., 2014); gates in the order reset, update, new. Called as `RNN`."""

  gates = 3

  def cell(self, x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next h."""
    (rx, zx, nx), (rh, zh, nh) = x.chunk(3, -1), h.chunk(3, -1)
    update = (zx + zh).sigmoid()
    new = (nx + (rx + rh).sigmoid() * nh).tanh()
    return (new + update * (state[0] - new),)


class LSTM(_Recurrent):
  """Layers of `LSTMCell`s. Call with x and optionally the first (h, c) → (h at each step, the last (h, c))."""

  gates, states = 4, 2

  def cell(self, x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The next h and c."""
    return _lstm(x + h, state[1])

  def __call__(self, x: Tensor, hc: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    seen, (h, c) = self.run(x, hc)
    return seen, (h, c)
