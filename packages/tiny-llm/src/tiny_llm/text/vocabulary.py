"""Names of tokens, kept as one run of bytes: a vocabulary has 50,000 to 250,000, and as objects each takes 60 bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import overload

__all__ = ["Vocabulary"]


class Vocabulary(Sequence[str]):
  """A list of texts that does not change."""

  def __init__(self, texts: Iterable[str]) -> None:
    each = [text.encode("utf-8", "surrogatepass") for text in texts]
    self._bytes = b"".join(each)
    self._ends = array("Q", accumulate(map(len, each), initial=0))
    """Where each text ends, and the next begins; 0 first."""

  def __len__(self) -> int:
    return len(self._ends) - 1

  def __iter__(self) -> Iterator[str]:
    for begin, end in pairwise(self._ends):
      yield self._bytes[begin:end].decode("utf-8", "surrogatepass")

  @overload
  def __getitem__(self, place: int) -> str: ...
  @overload
  def __getitem__(self, place: slice) -> list[str]: ...
  def __getitem__(self, place: int | slice) -> str | list[str]:
    if isinstance(place, slice):
      return [self[n] for n in range(len(self))[place]]
    place = range(len(self))[place]
    return self._bytes[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogatepass")
