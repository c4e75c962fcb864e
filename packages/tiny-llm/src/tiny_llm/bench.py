"""How fast a model reads a prompt and makes tokens, what memory would allow, and how fast llama.cpp is at the same.

All are measured by turns, in slices, because what else a machine does hits them alike; a figure is the best slice.
Times are of the processor, over all threads, where `processor` is true: on a busy machine the clock says little.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tiny_llm.architectures import Config
from tiny_llm.cache import CACHE_TYPES
from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.model import Chunk, Model, load_model
from tiny_tensor import Tensor, TinyJit

__all__ = ["bench_model"]

STREAM = 1 << 25
"""float32 of the array whose maximum shows what memory delivers: more than caches keep."""
STEPS = 16
"""Tokens of a slice."""

Slice = Callable[[], object]


def bench_model(
  path: Path, *, prompt: int = 128, slices: int = 8, exact: bool = False, cache_type: str = "f16",
  threads: int | None = None, processor: bool = False, slots: int = 1, position: int | None = None,
) -> dict[str, Any]:  # fmt: skip
  """Figures of a model file: tokens per second of `prefill` and `decode`, the `floor` of decode (tokens per second at
  which the weights alone would be read), and shares. With `threads` llama.cpp is measured beside it, with so many
  (needs llama-cpp-python, ValueError without it), and there are ratios: above 1 this is faster.

  With several `slots`, tokens after `position` others (the prompt's, if it is None) are decoded for one slot
  (`slot_decode`) and for all at once (`slots_decode`, tokens of all per second); `slots_ratio` is the second by the
  first, and `slots_floor` what it would be if reading weights, keys and values were all."""
  clock = time.process_time if processor else time.perf_counter
  checkpoint = open_checkpoint(path)
  start = clock()
  position = prompt if position is None else position
  context = max(2 * prompt, position) + STEPS * 2
  model = load_model(checkpoint, context=context, slots=slots, exact=exact, cache_type=cache_type)
  loaded = clock() - start
  tokens = random.Random(0).choices(range(model.config.vocabulary), k=max(prompt, position, STEPS))
  model.step([Chunk(0, 0, tokens[:1])])
  first = clock() - start
  stream = Tensor.ones(STREAM).contiguous().realize()
  read_stream = TinyJit(lambda x: x.max().realize())
  slices_of: dict[str, Slice] = {
    "prefill": lambda: model.step([Chunk(0, 0, tokens[:prompt])]),
    "decode": lambda: [model.step([Chunk(0, prompt + n, [tokens[n]])]) for n in range(STEPS)],
    "stream": lambda: read_stream(stream),
  }
  if slots > 1:
    slices_of |= _slots(model, tokens, position)
  if threads is not None:
    slices_of |= _llama(path, tokens, prompt, threads)
  best = dict.fromkeys(slices_of, float("inf"))
  for turn in range(slices + 3):
    for name, run in slices_of.items():
      start = clock()
      run()
      if turn >= 3:  # kernels are compiled, graphs are captured
        best[name] = min(best[name], clock() - start)
  looked_up = {"token_embd.weight"} if "output.weight" in checkpoint.tensors else set()
  read = sum(int(blocks.data.nbytes()) for name, blocks in checkpoint.tensors.items() if name not in looked_up)
  floor = STREAM * 4 / best["stream"] / read
  decode = STEPS / best["decode"]
  found = {
    "load": loaded, "first_token": first, "prefill": prompt / best["prefill"], "decode": decode, "floor": floor,
    "of_floor": decode / floor, "gigabytes_per_second": STREAM * 4 / best["stream"] / 1e9,
  }  # fmt: skip
  if slots > 1:
    single, several = STEPS / best["slot_decode"], slots * STEPS / best["slots_decode"]
    kept = position * _kept_bytes(model.config, cache_type)
    found |= {"slot_decode": single, "slots_decode": several, "slots_ratio": several / single}
    found["slots_floor"] = slots * (read + kept) / (read + slots * kept)
  if threads is not None:
    for name, count in (("prefill", prompt), ("decode", STEPS)):
      found[f"llama_{name}"] = count / best[f"llama_{name}"]
      found[f"{name}_ratio"] = best[f"llama_{name}"] / best[name]
  return found


def _slots(model: Model, tokens: list[int], position: int) -> dict[str, Slice]:
  """Tokens after `position` others, of one slot and of all at once."""
  slots = range(model.slots)
  if position:
    model.step([Chunk(0, 0, tokens[:position])])
  for slot in slots[1:]:
    model.copy_prefix(0, slot, position)

  def decode(slots: range) -> None:
    for n in range(STEPS):
      model.step([Chunk(slot, position + n, [tokens[n]]) for slot in slots])

  return {"slot_decode": lambda: decode(slots[:1]), "slots_decode": lambda: decode(slots)}


def _kept_bytes(config: Config, cache_type: str) -> float:
  """Of keys and values of a position."""
  return 2 * config.layers * config.kv_heads * config.head_dim * CACHE_TYPES[cache_type] / 8


def _llama(path: Path, tokens: list[int], prompt: int, threads: int) -> dict[str, Slice]:
  """The same by llama.cpp."""
  try:
    from llama_cpp import Llama
  except ImportError as error:
    raise ValueError(f"{error}: the comparison needs `pip install tiny-llm[bench]`") from None

  model = Llama(
    str(path), n_ctx=2 * prompt + STEPS * 2, n_threads=threads, n_threads_batch=threads, n_batch=prompt,
    verbose=False,
  )  # fmt: skip

  def prefill() -> None:
    model.reset()
    model.eval(tokens[:prompt])
    np.asarray(model.scores[model.n_tokens - 1])

  def decode() -> None:
    model.n_tokens = prompt
    for n in range(STEPS):
      model.eval(tokens[n : n + 1])

  return {"llama_prefill": prefill, "llama_decode": decode}
