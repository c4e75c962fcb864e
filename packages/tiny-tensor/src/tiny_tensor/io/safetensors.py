"""Model files in the safetensors format (huggingface.co/docs/safetensors).

The length of the header (8 bytes), the header as JSON, the raw little-endian data of the tensors.
A file is trusted with nothing: every number of the header is checked against the file before it is used.
"""

import contextlib
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiny_tensor.io import files
from tiny_tensor.tensor import Tensor
from tiny_uop import DType, dtypes

_DTYPES: dict[str, DType] = {
  "BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16, "U16": dtypes.uint16,
  "I32": dtypes.int32, "U32": dtypes.uint32, "I64": dtypes.int64, "U64": dtypes.uint64, "F8_E4M3": dtypes.fp8e4m3,
  "F8_E5M2": dtypes.fp8e5m2, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "F32": dtypes.float32,
  "F64": dtypes.float64,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000  # bytes; the limit of the reference implementation
_INDEX = ".index.json"
_FILE_NAME = re.compile(r"(?!\.\.?$)[^/\\\0\ud800-\udfff]+")  # that every system has, and in no other folder
_SHARD = 5_000_000_000  # bytes of tensors in a file of several, where nothing else is said
_ALIGNMENT = 8  # of the data section: mapped tensors are aligned for every type if each tensor's offset is


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
  header: dict[str, Any] = {}
  if metadata:
    wrong = {key: value for key, value in metadata.items() if not isinstance(key, str) or not isinstance(value, str)}
    if wrong:
      raise TypeError(f"metadata of a safetensors file maps text to text, got {wrong}")
    header["__metadata__"] = dict(metadata)
  offset = 0
  for name, t in tensors.items():
    if name == "__metadata__":
      raise ValueError("a tensor cannot be named '__metadata__' in a safetensors file")
    end = offset + math.prod(files.known_shape(t)) * t.dtype.itemsize
    header[name] = {"dtype": _NAMES[t.dtype], "shape": list(files.known_shape(t)), "data_offsets": [offset, end]}
    offset = end
  text = json.dumps(header, separators=(",", ":")).encode()
  return text + b" " * (-len(text) % _ALIGNMENT)


def safe_save(
  tensors: Mapping[str, Tensor],
  fn: str | Path,
  metadata: Mapping[str, str] | None = None,
  *,
  max_shard_size: int | None = None,
) -> None:
  """Writes tensors (and a text-to-text `metadata`) to the safetensors file `fn`.

  The file appears whole or not at all: it is written next to `fn` under another name, and then takes its place.

  With `max_shard_size`, in bytes, or if `fn` ends in `.index.json`, a model is written as files of at most so many
  bytes of tensors (one that is larger gets a file of its own), `model-00001-of-00002.safetensors` and so on, and an
  index, `model.safetensors.index.json`, for `safe_load`. The index comes last, and names new files: until then whoever
  loads gets the old model. The files of the old index are removed in the end.
  """
  index = Path(fn) if Path(fn).name.endswith(_INDEX) else None
  if max_shard_size is None and index is None:
    return _save_file(tensors, Path(fn), metadata)
  if max_shard_size is not None and max_shard_size < 1:
    raise ValueError(f"a file has one byte of tensors at least, got max_shard_size={max_shard_size}")
  index = index or Path(f"{fn}{_INDEX}")
  _save_shards(tensors, index, metadata, max_shard_size or _SHARD)


def _save_file(tensors: Mapping[str, Tensor], fn: Path, metadata: Mapping[str, str] | None) -> None:
  # widest types first, so that every tensor is aligned to its own size, as in the reference implementation
  ordered = dict(sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize))
  header = _header(ordered, metadata)
  with files.saved_to(fn) as file:
    file.write(len(header).to_bytes(8, "little"))
    file.write(header)
    for t in ordered.values():
      files.write_tensor(file, t)


def _save_shards(tensors: Mapping[str, Tensor], index: Path, metadata: Mapping[str, str] | None, most: int) -> None:
  groups: list[dict[str, Tensor]] = [{}]
  size = total = 0
  for name, t in tensors.items():
    nbytes = math.prod(files.known_shape(t)) * t.dtype.itemsize
    if groups[-1] and size + nbytes > most:
      groups.append({})
      size = 0
    groups[-1][name] = t
    size, total = size + nbytes, total + nbytes
  names = _new_names(index, len(groups))
  old = _listed(index)
  written: list[str] = []
  try:
    for name, group in zip(names, groups, strict=True):
      _save_file(group, index.with_name(name), metadata)
      written.append(name)
    places = {name: file for file, group in zip(names, groups, strict=True) for name in group}
    content = {"metadata": {**(metadata or {}), "total_size": total}, "weight_map": places}
    with files.saved_to(index) as file:
      file.write(json.dumps(content, indent=2).encode())
  except BaseException:
    for name in written:
      index.with_name(name).unlink(missing_ok=True)
    raise
  for name in old:
    with contextlib.suppress(OSError):  # where a mapped file cannot be removed it stays
      index.with_name(name).unlink(missing_ok=True)


def _new_names(index: Path, count: int) -> list[str]:
  """Names of files that do not exist: what an old index names has to stay until the new one is there."""
  stem = index.name.removesuffix(_INDEX).removesuffix(".safetensors")
  middles = ("", *(f".{attempt}" for attempt in range(1, 1 << 16)))
  tried = ([f"{stem}{m}-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)] for m in middles)
  return next(names for names in tried if not any(index.with_name(name).exists() for name in names))


def _listed(index: Path) -> set[str]:
  """The files that a valid old index names."""
  try:
    return set(_places(index).values())
  except (OSError, ValueError):
    return set()


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  made = dict(pairs)
  if len(made) != len(pairs):
    raise ValueError(f"name {files.first_repeated(name for name, _ in pairs)!r:.200} occurs twice")
  return made


def _parse(head: bytes, size: int) -> dict[str, Any]:
  """The header's JSON, from the first bytes of a file of `size` bytes. ValueError says what is wrong with it."""
  try:
    header = json.loads(head, object_pairs_hook=_no_repeats)
  except ValueError as error:  # also UnicodeDecodeError and JSONDecodeError
    raise ValueError(f"the header is not valid JSON: {error}") from None
  except RecursionError:
    raise ValueError("the header is nested too deeply") from None
  if not isinstance(header, dict):
    raise ValueError(f"the header is a {type(header).__name__}, expected an object")
  metadata = header.get("__metadata__", {})
  if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
    raise ValueError("__metadata__ must map text to text")
  spans = sorted(_span(name, entry, size) for name, entry in header.items() if name != "__metadata__")
  at = 0
  for begin, end, name in spans:
    if begin != at:
      raise ValueError(
        f"tensor {name!r} begins at byte {begin} of the data, expected {at}: no holes or overlaps are allowed"
      )
    at = end
  if at != size:
    raise ValueError(
      f"the tensors take {at} bytes of data, the file has {size}: it is truncated or has something appended"
    )
  return header


def _span(name: str, entry: Any, size: int) -> tuple[int, int, str]:
  """The span of a tensor in the data: (begin, end, name). Checks its entry."""
  if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
    raise ValueError(f"tensor {name!r} must have dtype, shape and data_offsets, got {files.short(entry)}")
  dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
  if not isinstance(dtype, str) or dtype not in _DTYPES:
    raise ValueError(f"tensor {name!r} has unknown dtype {files.short(dtype)}; known are {', '.join(_DTYPES)}")
  if not files.are_sizes(shape, list):
    raise ValueError(f"tensor {name!r} has shape {files.short(shape)}: expected a list of numbers, 0 or more")
  if not files.are_sizes(offsets, list) or len(offsets) != 2:
    raise ValueError(f"tensor {name!r} has data_offsets {files.short(offsets)}: expected [begin, end]")
  begin, end = offsets
  expected = files.check_shape(f"tensor {name!r}", tuple(shape)) * _DTYPES[dtype].itemsize
  if end - begin != expected:
    raise ValueError(
      f"tensor {name!r}, {dtype} of shape {tuple(shape)}, takes {expected} bytes, but its data_offsets "
      f"{files.short(offsets)} span {files.short(end - begin)}"
    )
  if end > size:
    raise ValueError(
      f"tensor {name!r} ends at byte {files.short(end)} of the data, of which the file has {size}: it is truncated"
    )
  return begin, end, name


def safe_load_metadata(t: Tensor | str | Path) -> tuple[Tensor, int, dict[str, Any]]:
  """A file, given by its path or as a tensor of its bytes, as (all its bytes, of a path a mapped tensor of uint8; where
  the data begins; the header, checked).

  Raises ValueError, naming the file and what is wrong, where it is not a whole and valid safetensors file.
  """
  whole, name = files.as_bytes(t), files.called(t)
  size = int(whole.shape[0])
  if size < 8:
    raise ValueError(f"{name} is not a safetensors file: it has {size} bytes, the length of the header alone takes 8")
  # the header is read through the mapping that the tensors will use: another file may take this name at any time
  mapped = files.whole_bytes(whole)
  length = int.from_bytes(mapped[:8], "little")
  if length > min(size - 8, _LONGEST_HEADER):
    raise ValueError(
      f"{name} is not a safetensors file: its header claims {length} bytes, "
      f"of {size - 8} that follow and {_LONGEST_HEADER} at most; it is truncated or of another format"
    )
  head = bytes(mapped[8 : 8 + length])
  with files.valid("safetensors", t):
    return whole, 8 + length, _parse(head, size - 8 - length)


def safe_load(fn: Tensor | str | Path) -> dict[str, Tensor]:
  """The tensors of a safetensors file by name, as views of the mapped file: nothing is read until they are used. The
  file is given by its path or as a tensor of its bytes.

  Of a model in several files, `fn` is the index that lists them (`model.safetensors.index.json`).
  Raises ValueError, naming the file and what is wrong, where it is not a whole and valid safetensors file.
  """
  if not isinstance(fn, Tensor) and Path(fn).suffix == ".json":
    return _load_shards(Path(fn))
  whole, start, header = safe_load_metadata(fn)
  return {
    name: files.tensor_at(whole, start + e["data_offsets"][0], _DTYPES[e["dtype"]], tuple(e["shape"]))
    for name, e in header.items()
    if name != "__metadata__"
  }


def _places(index: Path) -> dict[str, str]:
  """The file of each tensor, from an index."""
  try:
    content = json.loads(index.read_bytes(), object_pairs_hook=_no_repeats)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{str(index)!r} is not valid JSON: {error}") from None
  places = content.get("weight_map") if isinstance(content, dict) else None
  if not isinstance(places, dict):
    raise ValueError(f"{str(index)!r} is no index of safetensors files: it has no object 'weight_map'")
  for name, file in places.items():
    # a name with a folder in it would make an index read any file of the machine
    if not isinstance(file, str) or Path(file).name != file or not _FILE_NAME.fullmatch(file):
      raise ValueError(f"{str(index)!r} places {name!r} in {files.short(file)}: expected the name of a file next to it")
  return places


def _load_shards(index: Path) -> dict[str, Tensor]:
  """The tensors that an index lists, each from the file that it names."""
  places = _places(index)
  shards = {file: safe_load(index.with_name(file)) for file in dict.fromkeys(places.values())}
  for name, file in places.items():
    if name not in shards[file]:
      raise ValueError(f"{str(index)!r} places {name!r} in {file!r}, which does not have it")
  return {name: shards[file][name] for name, file in places.items()}
