"""Model files: metadata under GGUF's names, and tensors as they lie in the files, mapped and not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_llm.files.folder import KEYS, is_folder, read_folder
from tiny_tensor.nn.state import GGMLBlocks, gguf_blocks
from tiny_uop.records import dataclass

__all__ = ["Checkpoint", "open_checkpoint"]


VOCABULARY = tuple([f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "scores", "token_type")])
"""Keys of metadata that have an entry for each token or merge."""


@dataclass(frozen=True)
class Checkpoint:
  """A model file. `metadata` has GGUF's keys (`general.architecture`, `llama.block_count`, `tokenizer.ggml.tokens`);
  `tensors` has `GGMLBlocks` by GGUF's names (`blk.0.attn_q.weight`): bytes of the mapped file, shape and format.
  `changes` are fields of the `Architecture` that are otherwise than in GGUF files.
  """

  path: Path
  metadata: Mapping[str, object]
  tensors: Mapping[str, GGMLBlocks]
  changes: Mapping[str, Any]

  @property
  def name(self) -> str:
    """What the model is called: its file without `.gguf`, or its folder."""
    return self.path.stem if self.path.suffix == ".gguf" else self.path.resolve().name

  def without_vocabulary(self) -> Checkpoint:
    """The same without the lists of its tokenizer, which take 10 MB: for who has made a tokenizer of it."""
    kept = {key: value for key, value in self.metadata.items() if key not in VOCABULARY}
    return replace(self, metadata=kept)

  def nbytes(self) -> int:
    """The bytes of all tensors."""
    return sum(int(blocks.data.nbytes()) for blocks in self.tensors.values())

  def called(self, key: str) -> str:
    """What the file itself calls a key: a folder has the names of its `config.json`."""
    names = KEYS.get(key.partition(".")[2], ()) if self.path.is_dir() else ()
    return f"{' or '.join(names)} of config.json" if names else key

  def integer(self, key: str, default: int | None = None, most: int = 1 << 31) -> int:
    """The integer of a key, between 0 and `most`. Raises ValueError where there is none and no default, or another
    value."""
    value = self.metadata.get(key, default)
    if type(value) is not int or not 0 <= value <= most:
      raise ValueError(f"{self.path}: {self.called(key)} is {value!r:.60}, expected an integer from 0 to {most}")
    return value

  def number(self, key: str, default: float | None = None) -> float:
    """The finite number of a key. Raises ValueError where there is none and no default, or another value."""
    value = self.metadata.get(key, default)
    if type(value) not in (int, float) or not abs(value) < float("inf"):  # type: ignore[arg-type]
      raise ValueError(f"{self.path}: {self.called(key)} is {value!r:.60}, expected a finite number")
    return float(value)  # type: ignore[arg-type]

  def text(self, key: str, default: str | None = None) -> str:
    """The text of a key. Raises ValueError where there is none and no default, or another value."""
    value = self.metadata.get(key, default)
    if not isinstance(value, str):
      raise ValueError(f"{self.path}: {self.called(key)} is {value!r:.60}, expected text")
    return value


def open_checkpoint(path: str | Path) -> Checkpoint:
  """A GGUF file of version 2 or 3, or a folder with `config.json`, safetensors and `tokenizer.json`. Of tensors
  nothing but headers is read.

  Raises FileNotFoundError; ValueError, with the name of the file and the offset, for one that is truncated, contradicts
  itself (counts, sizes, tensors that overlap, nesting), is a part of a model that is split over several files, or holds
  formats that are not read.
  """
  if is_folder(Path(path)):
    try:
      metadata, tensors, changes = read_folder(Path(path))
    except RecursionError:
      raise ValueError(f"{path}: a file of JSON is nested too deeply") from None
    return Checkpoint(Path(path) if Path(path).is_dir() else Path(path).parent, metadata, tensors, changes)
  metadata, tensors = gguf_blocks(path)
  if metadata.get("split.count", 1) not in (0, 1):
    raise ValueError(
      f"{path} is a part of a model split over {metadata['split.count']!r:.20} files: "
      "merge them (llama-gguf-split --merge)"
    )
  return Checkpoint(Path(path), metadata, tensors, {})
