"""Operators on text, which is on no device: arrays of Python's strings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tiny_onnx.errors import ModelError
from tiny_onnx.registry import Call, op
from tiny_onnx.values import Value, checked_count, host_of
from tiny_tensor import Tensor

Array = np.ndarray[Any, Any]
MOST_PATTERN = 1000
"""Characters of a regular expression."""


def mapped(x: Array, function: Callable[[str], Any], dtype: Any = object) -> Array:
  made = np.empty(x.size, dtype)
  for i, text in enumerate(x.reshape(-1)):
    made[i] = function(str(text))
  return made.reshape(x.shape)


@op("StringConcat", 20, raw=True)
def string_concat(call: Call, x: Value, y: Value) -> Array:
  return np.asarray(host_of(x) + host_of(y), object)


@op("StringNormalizer", 10, raw=True)
def string_normalizer(call: Call, x: Value) -> Array:
  """Words without stop words, in capitals or not."""
  words, action = host_of(x), call["case_change_action"]
  exact, stop = bool(call["is_case_sensitive"]), call["stopwords"] or []
  change: Callable[[str], str] = {"UPPER": str.upper, "LOWER": str.lower}.get(action, str)
  banned = set(stop) if exact else {w.lower() for w in stop}
  rows = words.reshape(-1, words.shape[-1])
  if len(rows) > 1:
    raise ModelError(f"words come as (count) or (1, count), found shape {words.shape}")
  kept = [change(w) for w in rows[0] if (w if exact else w.lower()) not in banned] or [""]
  made = np.empty(len(kept), object)
  made[:] = kept
  return made.reshape([*words.shape[:-1], len(kept)])


@op("StringSplit", 20, raw=True)
def string_split(call: Call, x: Value) -> tuple[Array, Array]:
  """Parts of each string, filled up with empty ones, and their counts."""
  words, delimiter, most = host_of(x), call["delimiter"], call["maxsplit"]
  parts = [str(w).split(delimiter or None, -1 if most is None else most) for w in words.reshape(-1)]
  width = max(map(len, parts), default=0)
  made = np.full((len(parts), width), "", object)
  for row, found in zip(made, parts):
    row[: len(found)] = found
  counts = np.array([len(p) for p in parts], np.int64)
  return made.reshape([*words.shape, width]), counts.reshape(words.shape)


@op("RegexFullMatch", 20, raw=True)
def regex_full_match(call: Call, x: Value) -> Array:
  """Whether each string matches as a whole. Python's expressions, but for those that may take exponential time."""
  pattern = call["pattern"] or ""
  if len(pattern) > MOST_PATTERN or re.search(r"\([^()]*[*+][^()]*\)[*+{]", pattern):
    raise ModelError(f"the pattern {pattern[:80]!r} repeats repetitions, or is longer than {MOST_PATTERN} characters")
  try:
    compiled = re.compile(pattern)
  except re.error as error:
    raise ModelError(f"the pattern {pattern[:80]!r} is no regular expression: {error}") from error
  return mapped(host_of(x), lambda text: compiled.fullmatch(text) is not None, bool)


@op("TfIdfVectorizer", 9, raw=True)
def tfidf_vectorizer(call: Call, x: Value) -> Tensor:
  """Counts of n-grams with gaps, or their presence, or both weighted."""
  array = host_of(x)
  texts = call["pool_strings"]
  pool: list[Any] = list(texts) if texts else list(call["pool_int64s"])
  starts, places = call["ngram_counts"], call["ngram_indexes"]
  grams: dict[tuple[Any, ...], int] = {}
  place = 0
  for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)]), 1):
    for at in range(max(start, 0), min(end, len(pool)), length):
      grams[tuple(pool[at : at + length])] = place
      place += 1
  width = checked_count(max(places, default=0) + 1, "counts of n-grams")
  if len(places) < len(grams) or min(places, default=0) < 0:
    raise ModelError(f"ngram_indexes has a place, 0 or above, for each of {len(grams)} n-grams: found {places}")
  shortest, longest = call["min_gram_length"], call["max_gram_length"]
  weights = call["weights"] or [1.0] * len(places)
  if len(weights) < len(grams):
    raise ModelError(f"weights has one for each of {len(grams)} n-grams: found {weights}")
  rows = array.reshape(1, -1) if array.ndim == 1 else array
  made = np.zeros((len(rows), width), np.float32)
  for row, words in zip(made, rows):
    counts = np.zeros(len(places), np.int64)
    items = [w if texts else int(w) for w in words]
    for skip in range(min(call["max_skip_count"], len(items)) + 1):
      for length in range(max(shortest, 1), min(longest, len(items)) + 1):
        if length == 1 and skip:
          continue
        reach = (length - 1) * (skip + 1)
        for at in range(len(items) - reach):
          found = grams.get(tuple(items[at : at + reach + 1 : skip + 1]))
          if found is not None:
            counts[found] += 1
    for gram, count in enumerate(counts):
      if count:
        value = {"TF": count, "IDF": weights[gram], "TFIDF": count * weights[gram]}[call["mode"]]
        row[places[gram]] = value
  return Tensor(made.reshape(-1) if array.ndim == 1 else made)
