"""Checkpoints of tensors on several ranks: each rank writes what it has, and any number of ranks reads it again.

A checkpoint is a folder: `rank-0001-of-0004.safetensors` for each rank, and `index.json`, which says of each tensor its
shape, its dtype and which file has which part of it. It is written beside its place under another name, and moved there
when all ranks are done: a checkpoint is whole or not there.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TypeGuard

from tiny_dist.mesh import Mesh
from tiny_dist.pieces import Region, own_pieces, own_regions
from tiny_dist.ranks import World, world
from tiny_dist.system import STOPS
from tiny_runtime import Unavailable
from tiny_tensor import Tensor
from tiny_tensor.nn.state import safe_load, safe_save
from tiny_uop import UOp, even_bounds

INDEX = "index.json"
FILE = re.compile(r"rank-[0-9]{4,}-of-[0-9]{4,}\.safetensors")
VERSION = 1


class CheckpointError(RuntimeError):
  """A checkpoint cannot be written or read. What was there before is as it was."""


def save(tensors: Mapping[str, Tensor], folder: str | Path, notes: Mapping[str, Any] | None = None) -> None:
  """Writes tensors, by name, as the checkpoint `folder`; one that is there is replaced. All ranks call it.

  A rank writes its own pieces; tensors that all have whole are shared out among the ranks. `notes` are values for JSON
  that come with it: the number of the step. Raises CheckpointError on all ranks if one of them cannot write (its disk
  is full); then nothing has changed. Raises TypeError for notes that JSON cannot hold.
  """
  found, folder = world(), Path(folder)
  json.dumps(dict(notes or {}))  # rank 0 writes them: on all ranks here, so that none waits for it
  new = folder.with_name(f".{folder.name}.new")
  name = f"rank-{found.rank + 1:04}-of-{found.size:04}.safetensors"
  mine: dict[str, Tensor] = {}
  parts: dict[str, list[dict[str, Any]]] = {}
  for number, (key, t) in enumerate(tensors.items()):
    s = t.uop.sharding
    if s is not None and s.spans and len(set(s.ranks)) != found.size:
      raise ValueError(f"{key} is on ranks {s.ranks}; a checkpoint takes tensors that are on all ranks")
    pieces, regions = own_pieces(t), own_regions(t)  # all ranks compute it
    parts[key] = []
    for n, (piece, region) in enumerate(zip(pieces, regions)):
      if _writes(found, number, t, n):
        name_there = f"{key}#{n}" if n else key
        mine[name_there] = piece.contiguous()
        parts[key].append({"file": name, "name": name_there, "region": region})
  trouble = ""
  try:
    new.mkdir(parents=True, exist_ok=True)
    if mine:
      safe_save(mine, new / name)
  except OSError as error:
    trouble = f"rank {found.rank}: {error}"
  told = found.all_of({"trouble": trouble, "parts": parts})
  if not any(t["trouble"] for t in told) and found.rank == 0:
    try:
      _write_index(new, tensors, [t["parts"] for t in told], notes)
      _replace(new, folder)
    except OSError as error:
      trouble = f"rank 0: {error}"
  told = [{"trouble": text} for text in found.all_of(trouble)]
  if wrong := [t["trouble"] for t in told if t["trouble"]]:
    if found.rank == 0:
      shutil.rmtree(new, ignore_errors=True)
    found.barrier()
    raise CheckpointError(f"checkpoint {folder} is not written: {'; '.join(wrong)}. What was there is as it was")


def _writes(found: World, number: int, t: Tensor, n: int) -> bool:
  """Whether this rank writes piece n of its own: the first rank that has it; of tensors that all have whole, they take
  turns."""
  s = t.uop.sharding
  if s is None or not s.spans or not s.cuts:
    return number % found.size == found.rank and n == 0
  return all(s.region(i, t.shape) != s.region(s.here[n], t.shape) for i in range(s.here[n]))


def _write_index(
  new: Path, tensors: Mapping[str, Tensor], parts: list[dict[str, list[dict[str, Any]]]],
  notes: Mapping[str, Any] | None,
) -> None:  # fmt: skip
  entries = {
    key: {
      "shape": list(t.shape),
      "dtype": t.dtype.name,
      "parts": [part for of_rank in parts for part in of_rank[key]],
    }
    for key, t in tensors.items()
  }
  text = json.dumps({"version": VERSION, "notes": dict(notes or {}), "tensors": entries})
  with open(new / INDEX, "w", encoding="utf-8") as file:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _replace(new: Path, folder: Path) -> None:
  old = folder.with_name(f".{folder.name}.old")
  shutil.rmtree(old, ignore_errors=True)
  if folder.exists():
    folder.rename(old)
  try:
    new.rename(folder)
  except OSError:
    if old.exists():
      old.rename(folder)
    raise
  shutil.rmtree(old, ignore_errors=True)


def load(tensors: Mapping[str, Tensor], folder: str | Path) -> dict[str, Any]:
  """Puts the values of a checkpoint into tensors of the same names, in the layouts that these have, on any number of
  ranks. All ranks call it. Gives the notes.

  A rank reads of the files what it needs. Raises CheckpointError where a name, a shape or a file is missing, and
  TypeError for another dtype; before any tensor is changed, and on all ranks: those that have read theirs say whose
  files could not be read.
  """
  found, folder, own = world(), Path(folder), None
  try:
    made, notes = _read_all(tensors, folder)
  except Exception as error:  # of any kind: the others wait to hear of it
    own = error
  told = found.all_of("" if own is None else str(own) or type(own).__name__)
  if own is not None:
    raise own
  if wrong := [f"rank {rank}: {text}" for rank, text in enumerate(told) if text]:
    raise CheckpointError(f"checkpoint {folder} is not loaded: {'; '.join(wrong)}")
  for key, t in tensors.items():
    t.assign(made[key]).realize()
  return notes


def _read_all(tensors: Mapping[str, Tensor], folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
  """What this rank needs of a checkpoint, in the layouts of the tensors, and the notes."""
  entries, notes = _read_index(folder)
  if missing := sorted(tensors.keys() - entries.keys()):
    names = ", ".join(list(entries)[:5])
    raise CheckpointError(f"checkpoint {folder} has no {', '.join(missing[:5])}; it has {names}, …")
  for key, t in tensors.items():
    entry = entries[key]
    if tuple(entry["shape"]) != t.shape:
      raise CheckpointError(f"{key} has shape {tuple(entry['shape'])} in {folder}, and {t.shape} here")
    if entry["dtype"] != t.dtype.name:
      raise TypeError(f"{key} is {entry['dtype']} in {folder}, and {t.dtype.name} here: cast one of them")
  files: dict[str, dict[str, Tensor]] = {}
  for entry in entries.values():
    for part in entry["parts"]:
      if part["file"] not in files and not (folder / part["file"]).exists():
        raise CheckpointError(f"checkpoint {folder} has lost {part['file']}")
      files.setdefault(part["file"], {})
  return {key: _read(key, t, entries[key], folder, files) for key, t in tensors.items()}, notes


def _read_index(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
  """What the index says of each tensor, and the notes. Raises CheckpointError for what `save` does not write."""
  try:
    index = json.loads((folder / INDEX).read_text("utf-8"))
  except (OSError, ValueError, RecursionError) as error:
    raise CheckpointError(f"{folder} is no checkpoint: {error}") from None
  version = index.get("version") if isinstance(index, dict) else None
  if version != VERSION:
    raise CheckpointError(f"{folder} is of version {version!r:.40}, this tiny-dist reads version {VERSION}")
  entries, notes = index.get("tensors"), index.get("notes")
  if not isinstance(entries, dict) or not isinstance(notes, dict):
    raise CheckpointError(f"{folder / INDEX} is damaged: expected objects of tensors and notes")
  for key, entry in entries.items():
    if not _is_entry(entry):
      raise CheckpointError(f"{folder / INDEX} is damaged: it says {entry!r:.80} of {key!r:.80}")
  return entries, notes


def _is_entry(entry: object) -> bool:
  """Whether that says of a tensor its shape, its dtype and where its parts are: in files of the same folder."""
  if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
    return False
  shape, parts = entry.get("shape"), entry.get("parts")
  return _are_sizes(shape) and isinstance(parts, list) and all(_is_part(part, len(shape)) for part in parts)


def _is_part(part: object, ndim: int) -> bool:
  if not isinstance(part, dict) or not isinstance(part.get("name", ""), str):
    return False
  file, region = part.get("file"), part.get("region")
  if not isinstance(file, str) or not FILE.fullmatch(file) or not isinstance(region, list):
    return False
  return len(region) == ndim and all(_are_sizes(span) and len(span) == 2 for span in region)


def _are_sizes(value: object) -> TypeGuard[list[int]]:
  return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _read(key: str, t: Tensor, entry: Mapping[str, Any], folder: Path, files: dict[str, dict[str, Tensor]]) -> Tensor:
  """The parts of a tensor that this rank has, put together from the files."""
  s = t.uop.sharding
  homes = s.homes if s is not None else (str(t.device),)
  made = []
  for region, home in zip(own_regions(t), homes if s is None or s.spans else homes[:1]):
    found: list[tuple[Region, Tensor]] = []
    for part in entry["parts"]:
      if not files[part["file"]]:
        files[part["file"]] |= _stored(folder / part["file"])
      overlap = tuple([(max(a, c), min(b, d)) for (a, b), (c, d) in zip(region, part["region"])])
      if all(a < b for a, b in overlap):
        cut = tuple([slice(a - c, b - c) for (a, b), (c, _) in zip(overlap, part["region"])])
        stored = files[part["file"]].get(part.get("name", key))
        if stored is None or tuple(stored.shape) != tuple(d - c for c, d in part["region"]) or stored.dtype != t.dtype:
          raise CheckpointError(f"{folder / part['file']} has another {key} than {INDEX} says, or none")
        found.append((overlap, (stored[cut] if cut else stored).to(home)))
    wanted = tuple([b - a for a, b in region])
    piece = Tensor.zeros(wanted, dtype=t.dtype, device=home) if 0 in wanted else _side_by_side(found, 0)
    if piece is None or tuple(piece.shape) != wanted:
      raise CheckpointError(f"{folder} lacks parts of {key}, of which {region} is needed")
    made.append(piece)
  if s is None or not s.spans:
    return made[0] if s is None else Tensor(made[0].realize().uop.laid_out(s))
  return Tensor(UOp.multi(s, [piece.contiguous().realize().uop for piece in made]))


def _stored(file: Path) -> dict[str, Tensor]:
  try:
    return safe_load(file)
  except (OSError, ValueError, Unavailable) as error:  # which names the file
    raise CheckpointError(str(error)) from None


def _side_by_side(parts: list[tuple[Region, Tensor]], axis: int) -> Tensor | None:
  """Parts of a tensor in a grid, put together along an axis and those after it; None where they make none."""
  if len(parts) == 1:
    return parts[0][1]
  if not parts or axis == len(parts[0][0]):  # several in one place
    return None
  spans = sorted({region[axis] for region, _ in parts})
  rows = [_side_by_side([p for p in parts if p[0][axis] == span], axis + 1) for span in spans]
  whole = [row for row in rows if row is not None]
  others = {(*row.shape[:axis], *row.shape[axis + 1 :]) for row in whole}
  return whole[0].cat(*whole[1:], dim=axis) if len(whole) == len(rows) and len(others) == 1 else None


class Stop:
  """Whether the program is to stop: a cluster says so with SIGTERM some time before it ends a job.

  stop = Stop()
  for step in range(first, steps):
    train(step)
    if stop.asked():  # on all ranks at once
      save(tensors, "last", {"step": step + 1})
      break
  """

  def __init__(self) -> None:
    self._asked = False
    for number in STOPS:
      signal.signal(number, self._note)

  def _note(self, number: int, frame: FrameType | None) -> None:
    self._asked = True

  def asked(self) -> bool:
    """Whether any rank has been asked. All ranks call it, and get the same answer."""
    return any(world().all_of(self._asked))


def batches(count: int, size: int, seed: int, epoch: int, first: int = 0) -> list[list[int]]:
  """The batches of an epoch, as numbers of samples: the same on every rank and for every number of ranks, so that a
  program goes on where it was on other ranks. `count` samples in an order that `seed` and `epoch` give, `size` to a
  batch; those that do not fill one are left for another epoch. `first` batches are left out."""
  order = list(range(count))
  random.Random(f"{seed} {epoch}").shuffle(order)
  return [order[i : i + size] for i in range(first * size, count - size + 1, size)]


def own_rows(batch: list[int], mesh: Mesh) -> list[int]:
  """The part of a batch that is this rank's piece of axis 0: the rows to read for `from_pieces`."""
  if len(mesh) == 1:
    return batch
  bounds, own = even_bounds(len(batch), len(mesh)), mesh.here
  return batch[bounds[own[0]] : bounds[own[-1] + 1]]
