"""Recurrent cells."""

from tiny_tensor.nn.start import uniform
from tiny_tensor.tensor import Tensor


class LSTMCell:
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
    i, f, g, o = gates.chunk(4, dim=1)
    c = f.sigmoid() * hc[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c
