"""Packed weights against the numbers that the package `gguf` makes of the file, and products with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.quantised.packing import PLANS, Packed, pack
from tiny_llm.quantised.products import exact_product, product, rounded
from tiny_sched import schedule_cache_info
from tiny_tensor import Tensor, TinyJit, Variable

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 40, 512  # rows that 16 do not divide


FLOATS = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}
"""Where the float16 of a block are, of formats that `gguf` reads and does not write."""


def blocks_of(kind: str, rng: np.random.Generator) -> Array:
  """A matrix of random numbers in a format, as bytes."""
  how = gguf.GGMLQuantizationType[kind]
  if kind not in FLOATS:
    return np.asarray(gguf.quants.quantize(rng.normal(size=(ROWS, COLUMNS)).astype(np.float32), how))
  elements, size = gguf.GGML_QUANT_SIZES[how]
  raw = rng.integers(0, 256, (ROWS, COLUMNS // elements, size), dtype=np.uint8)
  for at in FLOATS[kind]:
    raw[..., at : at + 2] = rng.uniform(1e-3, 2e-3, (*raw.shape[:2], 1)).astype(np.float16).view(np.uint8)
  return raw.reshape(ROWS, -1)


def matrices(folder: Path, kind: str, count: int = 1) -> tuple[Packed, Array]:
  """Matrices of random blocks, packed one below the other, and their numbers in float64."""
  how, rng = gguf.GGMLQuantizationType[kind], np.random.default_rng(0)
  writer = gguf.GGUFWriter(folder / "a.gguf", "llama")
  numbers = []
  for n in range(count):
    raw = blocks_of(kind, rng)
    writer.add_tensor(f"m{n}.weight", raw, raw_dtype=how)
    numbers.append(gguf.quants.dequantize(raw, how).astype(np.float64))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  tensors = open_checkpoint(folder / "a.gguf").tensors
  return pack([tensors[f"m{n}.weight"] for n in range(count)]), np.concatenate(numbers)


@pytest.fixture(params=sorted(PLANS), scope="module")
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Packed, Array]:
  return matrices(tmp_path_factory.mktemp("packed"), request.param, 2)


def test_numbers_are_those_of_the_file(made: tuple[Packed, Array]) -> None:
  packed, expected = made
  assert (packed.rows, packed.columns) == expected.shape
  np.testing.assert_allclose(packed.numbers().numpy(), expected, rtol=1e-6, atol=1e-6)
  rows = [0, 15, 16, 79, 3]
  np.testing.assert_allclose(packed.numbers_of(Tensor(rows)).numpy(), expected[rows], rtol=1e-6, atol=1e-6)


def test_a_large_matrix_is_packed_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(f"{pack.__module__}.PIECE", 32 * COLUMNS)
  monkeypatch.setattr("test_llm_packing.ROWS", 5 * 32 + 16)
  for kind in ("Q8_0", "Q5_K"):
    packed, expected = matrices(tmp_path, kind)
    np.testing.assert_allclose(packed.numbers().numpy(), expected, rtol=1e-6, atol=1e-6)


def test_matrices_of_a_shape_are_scheduled_once(tmp_path: Path) -> None:
  matrices(tmp_path, "Q4_1")
  before = schedule_cache_info().misses
  made = [matrices(tmp_path, "Q4_1", count) for count in (1, 3)]  # others, and elsewhere in a file
  assert schedule_cache_info().misses - before <= 3, "one for three matrices, none for one more like the first"
  assert [packed.rows for packed, _ in made] == [ROWS, 3 * ROWS]


def test_packed_bytes_are_no_more_than_those_of_the_file(tmp_path: Path, made: tuple[Packed, Array]) -> None:
  packed, _ = made
  bits = sum(8 * part.nbytes() for part in packed.parts) / (80 * COLUMNS)
  assert bits <= 9


@pytest.mark.parametrize("tokens", [1, 3, 16])
def test_exact_products(made: tuple[Packed, Array], tokens: int) -> None:
  packed, expected = made
  x = np.random.default_rng(1).normal(size=(tokens, COLUMNS)).astype(np.float32)
  found = exact_product(Tensor(x), packed).numpy()
  np.testing.assert_allclose(found, x.astype(np.float64) @ expected.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("tokens", [1, 3, 16])
def test_products_of_integers(made: tuple[Packed, Array], tokens: int) -> None:
  """What rounding activations to 8 bits changes is less than a hundredth of the spread of the results."""
  packed, expected = made
  x = np.random.default_rng(1).normal(size=(tokens, COLUMNS)).astype(np.float32)
  weight = np.random.default_rng(2).uniform(0.5, 2, COLUMNS).astype(np.float32)
  normalised = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5) * weight
  for given, ready in (
    (x, rounded(Tensor(x), groups=packed.groups)),
    (normalised, rounded(Tensor(x), Tensor(weight), 1e-5, packed.groups)),
  ):
    right = given @ expected.T
    assert np.abs(product(ready, packed).numpy() - right).max() < 0.03 * right.std()
    # and they are the products of the rounded activations
    blocks = given.reshape(tokens, -1, 32)
    scale = np.abs(blocks).max(2, keepdims=True) / 127
    right = (np.round(blocks / scale) * scale).reshape(tokens, -1) @ expected.T
    assert np.abs(product(ready, packed).numpy() - right).max() < 0.01 * right.std()


@pytest.mark.parametrize("tokens", [1, 3])
def test_two_terms_make_the_error_smaller(made: tuple[Packed, Array], tokens: int) -> None:
  """By 254, up to what float32 has: the product is nearly the exact one, normalised or not."""
  packed, expected = made
  x = np.random.default_rng(1).normal(size=(tokens, COLUMNS)).astype(np.float32)
  x[0, :32] = np.append(np.arange(96, 127) + 0.5, 127)  # second terms as large as can be
  weight = np.random.default_rng(2).uniform(0.5, 2, COLUMNS).astype(np.float32)
  normalised = x / np.sqrt((x.astype(np.float64) ** 2).mean(1, keepdims=True) + 1e-5) * weight
  for given, by in ((x, None), (normalised, Tensor(weight))):
    right = given.astype(np.float64) @ expected.T
    errors = []
    for terms in (1, 2):
      ready = rounded(Tensor(x), by, 1e-5, packed.groups, terms=terms)
      errors.append(np.abs(product(ready, packed).numpy() - right).max() / right.std())
    assert errors[1] < min(errors[0] / 50, 2e-4), errors


def test_products_of_as_many_tokens_as_there_are(tmp_path: Path) -> None:
  """Those up to the last one are what they are without the others, also with a gate and something added."""
  packed, _ = matrices(tmp_path, "Q6_K")
  rng = np.random.default_rng(1)
  x, added = (Tensor(rng.normal(size=(16, n)).astype(np.float32)).realize() for n in (COLUMNS, packed.rows))
  last = Variable("last", 0, 15)
  for gate, more in ((None, None), (packed, added)):
    whole = product(rounded(x, groups=packed.groups), packed, gate=gate, added=more).numpy()
    for count in (1, 4, 9, 16):
      few = product(rounded(x, groups=packed.groups, last=last), packed, gate=gate, added=more)
      bound = (Tensor.arange(16).reshape(-1, 1) <= last.bind(count - 1)).where(few, 0.0).numpy()
      np.testing.assert_allclose(bound[:count], whole[:count], rtol=1e-5, atol=1e-5)


def test_activations_of_zeros_and_of_large_numbers(made: tuple[Packed, Array]) -> None:
  packed, expected = made
  x = np.zeros((2, COLUMNS), np.float32)
  x[1, 32:64] = 1e30
  found = product(rounded(Tensor(x), groups=packed.groups), packed).numpy()
  assert (found[0] == 0).all()
  np.testing.assert_allclose(found[1], x[1] @ expected.T, rtol=1e-2, atol=1e28)


def test_a_product_is_two_kernels(made: tuple[Packed, Array]) -> None:
  """One rounds, the other does the rest: no part of the weights has a copy."""
  packed, _ = made
  x, weight = Tensor.randn(1, COLUMNS).realize(), Tensor.rand(COLUMNS).realize()
  assert len(product(rounded(x, weight, 1e-5, packed.groups), packed).schedule()) == 2
  assert len(exact_product(x, packed).schedule()) == 1


def test_a_product_is_captured() -> None:
  rng = np.random.default_rng(0)
  codes, scale = rng.integers(-126, 127, (3, 2, 32)).astype(np.float32), np.float32(0.03)
  codes[..., 0] = 127  # the largest: it has the scale
  beside = rng.uniform(-0.4, 0.4, codes.shape) * (codes != 127)  # far from where a number may be rounded either way
  x = Tensor(((codes + beside) * scale).astype(np.float32).reshape(3, 64)).realize()
  captured = TinyJit(lambda x: rounded(x).totals.sum(-1).realize())
  for _ in range(3):
    found = captured(x).numpy()
  np.testing.assert_allclose(found, (codes * scale).sum(2), rtol=1e-4, atol=1e-4)
