"""Pipelines: the stages of a model on the ranks of a row, and microbatches on their way through them.

The order is one forward, one backward (1F1B: Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN
training", 2019): stage s of p, counted from 0, starts p − s microbatches, then finishes one before it starts another.
So it keeps at most p − s of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod

from tiny_dist.mesh import Mesh
from tiny_dist.pieces import own_piece, own_pieces
from tiny_sched.devices.ranks import carried_out, noted
from tiny_tensor import Tensor, nn
from tiny_uop import Collective, Cut, UOp, dtypes


class Pipeline:
  """A model in stages, one for each rank along an axis of a mesh, trained on microbatches.

  model = Pipeline([first, second], Mesh({"stage": 2}), "stage", microbatches=4)
  optimizer = nn.optim.SGD(nn.state.get_parameters(model.own))
  loss = model.step(x, y, Tensor.sparse_categorical_crossentropy)  # adds to the gradients
  optimizer.step()

  Every rank makes all stages, and computes only `own`: parameters that nothing looks at take no memory. A stage is an
  object whose parameters `nn.state.get_parameters` finds. Those of all stages may be on another row of the mesh, as `x`
  and `y` are then: data parallel in each stage. A stage keeps what came in of the microbatches under way, and computes
  the forward pass again for the backward pass.
  Raises ValueError if there are not as many stages as ranks along the axis, or for a mesh with several devices of a
  rank: they would wait for each other, as one program launches the kernels of all in order. A rank for each does not.
  """

  def __init__(
    self, stages: Sequence[Callable[[Tensor], Tensor]], mesh: Mesh, axis: str = "stage", microbatches: int = 1
  ) -> None:  # fmt: skip
    if (local := len(mesh.here)) > 1:
      todo = "Start a rank for each device: mpiexec -n, and `device` of Mesh by the rank's number on its machine"
      raise ValueError(f"{mesh} has {local} devices of each rank, and a stage is computed by one. {todo}")
    self._row, self._stages = mesh.row(axis), stages
    self.microbatches = microbatches
    """In how many equal parts the rows of a batch go through."""
    self.number = mesh.coordinates[axis]
    """That of this rank's stage, from 0."""
    if len(stages) != len(self._row):
      raise ValueError(f"{len(stages)} stages on the {len(self._row)} ranks along {axis!r}: expected one for each")
    self.own = stages[self.number]
    """The stage of this rank."""
    self.last = len(stages) - 1

  def step(self, x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Adds the gradients of `loss(model(x), y)` to those of the parameters of `own`, and gives it, on every rank: the
    mean over the microbatches. Raises ValueError for rows that they do not divide."""
    count, ahead = self.microbatches, min(self.last - self.number, self.microbatches)
    xs, ys = _parts(x, count), _parts(y, count)
    comes, goes = self._between(xs[0])
    kept: deque[Tensor] = deque()  # what came in of the microbatches whose backward pass is still to come
    losses: list[Tensor] = []

    def forward(i: int, came: Tensor | None) -> Tensor | None:
      given = xs[i] if came is None else came
      given.requires_grad = came is not None
      kept.append(given)
      return None if goes is None else self.own(given).detach().contiguous().realize()

    def backward(i: int, gradient: Tensor | None) -> Tensor | None:
      given = kept.popleft()
      result = self.own(given)
      if goes is None:
        result = loss(result, ys[i]) / count
        losses.append(result.detach())
      result.backward(gradient)
      reached = [t.grad for t in (given, *nn.state.get_parameters(self.own)) if t.grad is not None]
      Tensor.realize(*reached, *losses[-1:])
      return given.grad

    for i in range(ahead):
      self._exchange(1, forward(i, self._exchange(-1, None, comes)), None)
    came = self._exchange(-1, None, comes) if ahead < count else None
    for i in range(ahead, count):
      gradient = self._exchange(1, forward(i, came), goes)
      came = self._exchange(-1, backward(i - ahead, gradient), comes if i + 1 < count else None)
    for i in range(count - ahead, count):
      self._exchange(-1, backward(i, self._exchange(1, None, goes)), None)
    return self._of_last(losses)

  def _between(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """What comes from the stage before, and goes to the next, of one microbatch: it has shape and layout, and is not
    computed."""
    passed = list(accumulate(self._stages[:-1], lambda given, stage: stage(given), initial=x))
    return passed[self.number] if self.number else None, passed[self.number + 1] if self.number < self.last else None

  def _exchange(self, where: int, sent: Tensor | None, wanted: Tensor | None) -> Tensor | None:
    """Sends something to the next stage (1) or to the one before (-1), and gives what comes from there, which is as
    `wanted`. None where there is no such stage, or nothing wanted."""
    like = sent if wanted is None else wanted
    if not 0 <= self.number + where <= self.last or like is None:
      return None
    other = 1 if where == 1 else 0  # of the two, the position of the other one
    ranks = self._row.ranks[self.number - (1 - other) :][:2]
    data = Tensor.zeros(1, dtype=like.dtype, device=self._row.device).contiguous() if sent is None else own_piece(sent)
    s = None if wanted is None else wanted.uop.sharding
    shape = () if wanted is None else wanted.shape if s is None else s.part_shape(s.here[0], wanted.shape)
    counts = [0 if sent is None else int(data.numel()), 0 if wanted is None else int(prod(shape))]
    to, of = ((n, 0) if other == 0 else (0, n) for n in counts)
    forth, back = (sent, wanted) if where == 1 else (wanted, sent)
    graph = noted([f"{way} {_words(t)}" for way, t in (("forward", forth), ("backward", back))])
    arg = Collective("send_recv", ranks, (to,), (of,), 1 - other, graph=graph)
    (row,) = carried_out(arg, [data.reshape(-1).realize().uop], [max(1, counts[1])], self._row.device)
    uop = Tensor(row.reshape(shape if wanted is not None else (1,))).contiguous().realize().uop
    return None if wanted is None else Tensor(uop if s is None else UOp.multi(s, (uop,)))

  def _of_last(self, losses: Sequence[Tensor]) -> Tensor:
    """The sum of what the last stage has, on all."""
    mine = losses[0].stack(*losses[1:]).sum() if losses else Tensor.zeros(1, device=self._row.device).sum()
    counts = (1,) * len(self._row)
    arg = Collective("all_gather", self._row.ranks, (counts,), (counts,), self.number, graph=noted(["loss"]))
    data = own_piece(mine).cast(dtypes.float32).reshape(1).contiguous().realize().uop
    (row,) = carried_out(arg, [data], [len(counts)], self._row.device)
    return Tensor(row).contiguous().realize()[self.last]


def _words(t: Tensor | None) -> str:
  return "nothing" if t is None else f"{t.dtype.name} {t.shape}"


def _parts(t: Tensor, count: int) -> list[Tensor]:
  """Rows in equal parts; of a tensor whose rows are in pieces, a part of each piece."""
  s = t.uop.sharding
  cut = None if s is None or not s.spans else next((c for c in s.cuts if c.axis == 0), None)
  rows = cut.bounds if cut is not None else (0, int(t.shape[0]))
  if any(n % count for n in rows):
    raise ValueError(f"{count} microbatches do not divide the rows {list(rows)} of a tensor of shape {t.shape}")
  if s is None or cut is None:
    return [t[i * (n := rows[1] // count) : (i + 1) * n] for i in range(count)]
  small = Cut(0, tuple([n // count for n in rows]), cut.along)
  part, parts = s.with_cuts([small, *[c for c in s.cuts if c is not cut]]), []
  for i in range(count):
    pieces = [(p, int(p.shape[0]) // count) for p in own_pieces(t)]
    parts.append(Tensor(UOp.multi(part, [p[i * n : (i + 1) * n].contiguous().realize().uop for p, n in pieces])))
  return parts
