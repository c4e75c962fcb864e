"""The most memory that tiny-llm has in a conversation of many turns that fills the context, beside its file.

`python integration/bench/llm_memory.py MODEL.gguf`. Run it twice: what compiles kernels has LLVM in memory, so that the
first figure is larger.
"""

from __future__ import annotations

import random
import resource
import sys
from pathlib import Path

from tiny_llm.generate import Request
from tiny_llm.sampling import SamplingOptions
from tiny_llm.session import Session

CONTEXT = 2048
PROMPTS = (9, 300, 20, 150, 64, 37, 128, 100, 12, 250, 90, 17, 200, 45)
ANSWERS = (5, 20, 60, 30)
"""Tokens, of which each turn has some."""


def main(path: Path) -> None:
  """Talks until the context is full, and prints the most memory that the process had."""
  session = Session(path, context=CONTEXT, quiet=True)
  engine, config = session.engine, session.engine.model.config
  draw, tokens, turns = random.Random(0), list[int](), 0
  while len(tokens) < CONTEXT - 2:
    asked = min(draw.choice(PROMPTS), CONTEXT - 2 - len(tokens))
    tokens += draw.choices(range(config.vocabulary), k=asked)
    most = min(draw.choice(ANSWERS), CONTEXT - len(tokens))
    generation = engine.submit(Request(list(tokens), SamplingOptions(temperature=0), most, ignore_ends=True))
    while generation.finish is None:
      engine.step()
    if generation.error is not None:
      raise generation.error
    tokens += generation.generated
    turns += 1
  session.close()
  cache = CONTEXT * config.layers * config.kv_heads * config.head_dim * 2 * 2
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # on Linux
  print(f"{turns} turns, {len(tokens)} tokens: {peak / 1e6:.1f} MB at most", end=", ")
  print(f"{path.stat().st_size / 1e6:.1f} MB of file, {cache / 1e6:.1f} MB of keys and values at {CONTEXT} positions")


if __name__ == "__main__":
  main(Path(sys.argv[1]))
