"""`DataLoader`: batches of a data set, in order or shuffled, made ready in a background thread."""

from __future__ import annotations

import itertools
import random
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, runtime_checkable

from tiny_tensor.io.files import from_bytes, known_shape, stored_bytes
from tiny_tensor.methods.random import STREAM
from tiny_tensor.tensor import Tensor, array_dtype


@runtime_checkable
class Dataset(Protocol):
  """Items by number."""

  def __len__(self) -> int: ...
  def __getitem__(self, index: int, /) -> Any: ...


class _Rows:
  """The rows of one array as bytes; of a mapped file only what a batch needs is read."""

  def __init__(self, data: Any) -> None:
    self._keeper: Any
    if isinstance(data, Tensor):
      shape, self.dtype = known_shape(data), data.dtype
      self.raw, self._keeper = stored_bytes(data)
    else:
      shape, self.dtype = tuple(int(s) for s in data.shape), array_dtype(data)
      plain = data.flags.c_contiguous and data.dtype.byteorder != ">"
      self._keeper = data if plain else data.astype(data.dtype.newbyteorder("<"), order="C")
      self.raw = memoryview(self._keeper.tobytes() if 0 in shape or not shape else self._keeper).cast("B")
    if not shape:
      raise ValueError("a data set is an array of rows, got one of no axes")
    self.count, self.shape = shape[0], shape[1:]
    self._size = len(self.raw) // self.count if self.count else 0

  def take(self, places: Sequence[int]) -> bytes:
    """Some rows, one behind the other."""
    size = self._size
    if len(places) > 1 and places[-1] - places[0] == len(places) - 1 and isinstance(places, range):
      return bytes(self.raw[places[0] * size : (places[-1] + 1) * size])
    return b"".join([self.raw[i * size : (i + 1) * size] for i in places])


class _Arrays:
  """A data set of arrays with as many rows each: an item is a row of every one of them."""

  def __init__(self, arrays: Sequence[Any]) -> None:
    self.rows = [_Rows(a) for a in arrays]
    if len({r.count for r in self.rows}) != 1:
      raise ValueError(f"the arrays of a data set have as many rows each, got {[r.count for r in self.rows]}")

  def __len__(self) -> int:
    return self.rows[0].count

  def gather(self, places: Sequence[int]) -> Any:
    """In the background: the bytes of a batch."""
    return [r.take(places) for r in self.rows], len(places)

  def collate(self, gathered: Any, device: str | None) -> Any:
    """The tensors of a gathered batch, made in the thread that asks for it."""
    pieces, count = gathered
    made = [from_bytes(raw, r.dtype, (count, *r.shape), device) for raw, r in zip(pieces, self.rows, strict=True)]
    return tuple(made) if len(made) > 1 else made[0]


class _Items:
  """A data set of items that Python makes: numbers, nested lists, NumPy arrays, tensors, or tuples of these."""

  def __init__(self, items: Dataset) -> None:
    self.items = items

  def __len__(self) -> int:
    return len(self.items)

  def gather(self, places: Sequence[int]) -> Any:
    """In the background: the items of a batch."""
    return [self.items[i] for i in places]

  def collate(self, gathered: Any, device: str | None) -> Any:
    """The tensors of a gathered batch, made in the thread that asks for it."""
    if not isinstance(gathered[0], tuple):
      return _stack(gathered, device)
    if len({len(item) for item in gathered}) != 1:
      raise ValueError(
        f"the items of a batch are tuples of {sorted({len(i) for i in gathered})} parts: expected as many"
      )
    return tuple(_stack(parts, device) for parts in zip(*gathered, strict=True))


def _stack(values: Sequence[Any], device: str | None) -> Tensor:
  first = values[0]
  if isinstance(first, Tensor):
    return first.stack(*values[1:]).to(device)
  if hasattr(first, "__array_interface__"):
    rows = [_Rows(v.reshape(1, *v.shape)) for v in values]
    if len({(r.shape, r.dtype) for r in rows}) != 1:
      raise ValueError(f"the items of a batch differ in shape or dtype: {sorted({str(r.shape) for r in rows})}")
    return from_bytes(b"".join(r.raw for r in rows), rows[0].dtype, (len(rows), *rows[0].shape), device)
  return Tensor(list(values), device=device)


class DataLoader:
  """Iterates over batches of a data set; again and again, each time one epoch.

  `dataset` is a tensor or NumPy array whose rows are the items, a tuple or list of these with as many rows each, or an
  object with `__len__` and `__getitem__` whose items are numbers, nested lists, arrays, tensors, or tuples of these. A
  batch is a tensor with a new first axis on `device` (None: the default one), or a tuple of such.

  `shuffle` draws a new order for each epoch: from `seed` and the number of the epoch (`epoch`, which may be set to go
  on from where another process was), or, if `seed` is None, from `Tensor.manual_seed`'s stream. `drop_last` leaves out
  a last batch that is not full. While a batch is used, the next `prefetch` are gathered in a thread of their own (0: no
  thread); an error there is raised where that batch is asked for. The thread ends with the loop, however it is left.
  """

  def __init__(
    self,
    dataset: Any,
    batch_size: int = 1,
    shuffle: bool = False,
    *,
    seed: int | None = None,
    drop_last: bool = False,
    prefetch: int = 2,
    device: str | None = None,
  ) -> None:
    if batch_size < 1 or prefetch < 0:
      raise ValueError(f"a batch has one item at least and prefetch is not negative, got {batch_size} and {prefetch}")
    self.batch_size, self.shuffle, self.seed, self.drop_last = batch_size, shuffle, seed, drop_last
    self.prefetch, self.device, self.epoch = prefetch, device, 0
    if isinstance(dataset, (tuple, list)):
      self._source: _Arrays | _Items = _Arrays(dataset)
    elif isinstance(dataset, Tensor) or hasattr(dataset, "__array_interface__"):
      self._source = _Arrays([dataset])
    elif isinstance(dataset, Dataset):
      self._source = _Items(dataset)
    else:
      raise TypeError(f"a data set has rows, or __len__ and __getitem__; got a {type(dataset).__name__}")

  def __len__(self) -> int:
    """Batches in an epoch."""
    full, rest = divmod(len(self._source), self.batch_size)
    return full + (1 if rest and not self.drop_last else 0)

  def order(self, epoch: int) -> Sequence[int]:
    """The positions of the items in the order in which an epoch takes them."""
    if not self.shuffle:
      return range(len(self._source))
    if self.seed is None:
      key, counter = struct.unpack("=2Q", STREAM.draw(1))
      chance = random.Random(key << 64 | counter)
    else:
      chance = random.Random(f"{self.seed} {epoch}")
    places = list(range(len(self._source)))
    chance.shuffle(places)
    return places

  def __iter__(self) -> Iterator[Any]:
    order, size = self.order(self.epoch), self.batch_size
    self.epoch += 1
    batches = [order[i * size : (i + 1) * size] for i in range(len(self))]
    source, device = self._source, self.device
    if not self.prefetch:
      return (source.collate(source.gather(places), device) for places in batches)
    return _prefetched(source.gather, batches, self.prefetch, lambda gathered: source.collate(gathered, device))


def _prefetched(
  gather: Callable[[Sequence[int]], Any], batches: Sequence[Sequence[int]], early: int, finish: Callable[[Any], Any]
) -> Iterator[Any]:
  """`finish(gather(batch))` of each batch; `gather` runs in a thread, up to `early` batches before their use."""
  with ThreadPoolExecutor(1, "DataLoader") as pool:
    rest = iter(batches)
    gathered = deque(pool.submit(gather, places) for places in itertools.islice(rest, early))
    try:
      while gathered:
        found = gathered.popleft().result()
        gathered.extend(pool.submit(gather, places) for places in itertools.islice(rest, 1))
        yield finish(found)
    finally:
      for waiting in gathered:
        waiting.cancel()
