"""Results of searches as text, to be kept between processes by whoever has a place for them."""

from __future__ import annotations

import math
from typing import Protocol

from tiny_codegen.opt.apply import apply_opts
from tiny_codegen.opt.beam import Build, Measure, beam_search, before_opts
from tiny_codegen.render.base import Renderer
from tiny_uop import KernelInfo, Opt, UOp, parse_uop, print_uop


class Notes(Protocol):
  """A place for one text about one kernel, for one target, one set of versions and settings."""

  def recall(self) -> str | None:
    """The text that `remember` was given last, maybe in another process; None if there is none."""

  def remember(self, found: str) -> None:
    """Keep a text."""


def search_opts(
  kernel: UOp, renderer: Renderer, measure: Measure, width: int, build: Build, notes: Notes | None = None
) -> tuple[Opt, ...]:
  """The Opts that an earlier search has left in `notes`, or that `beam_search` finds now and leaves there."""
  if notes is not None and (known := _known(kernel, renderer, notes.recall())) is not None:
    return known
  found, seconds = beam_search(kernel, renderer, measure, width, build)
  if notes is not None and math.isfinite(seconds):
    notes.remember(written(found, seconds))
  return found


def written(opts: tuple[Opt, ...], seconds: float) -> str:
  """The text of a result: the time in seconds on the first line, then a kernel without contents that has the Opts."""
  return f"{seconds!r}\n{print_uop(UOp.sink(arg=KernelInfo(opts=opts)))}"


def read(text: str) -> tuple[tuple[Opt, ...], float]:
  """The inverse of `written`. Raises ValueError for any other text."""
  seconds, _, rest = text.partition("\n")
  info = parse_uop(rest).arg
  if not isinstance(info, KernelInfo) or info.opts is None:
    raise ValueError(f"not the result of a search: {text!r}")
  return info.opts, float(seconds)


def _known(kernel: UOp, renderer: Renderer, text: str | None) -> tuple[Opt, ...] | None:
  """What a text says, if it says anything that fits the kernel."""
  if text is None:
    return None
  try:
    opts, _ = read(text)
    apply_opts(before_opts(kernel), opts, renderer.target)
  except ValueError:  # a KernelOptError is one too
    return None
  return opts
