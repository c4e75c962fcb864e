"""ggml's formats against its own package `gguf`: every number bit for bit, files that it wrote, and the code books."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.io.ggml import FORMATS, NOT_READ
from tiny_tensor.nn.state import ggml_data_to_tensor, gguf_load

gguf: Any = pytest.importorskip("gguf")  # only in the environment `oracle`

ROOT = Path(__file__).parents[3]
Q: Any = gguf.GGMLQuantizationType
WITHOUT_ORACLE = ("Q8_1", "Q8_K")  # of sums within products: they are in no file, and gguf does not take them apart
QUANTISED = sorted(kind for kind, how in FORMATS.items() if how.decode and how.name not in WITHOUT_ORACLE)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def random_blocks(kind: int, count: int, seed: int) -> Any:
  return np.random.default_rng(seed).integers(0, 256, (count, FORMATS[kind].nbytes), dtype=np.uint8)


def assert_same_bits(found: Any, expected: Any) -> None:
  """Equal to the sign of zero; all that is no number counts as equal."""
  assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
  numbers = ~np.isnan(expected)
  np.testing.assert_array_equal(np.isnan(found), ~numbers)
  np.testing.assert_array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))


def test_every_format_of_the_package_is_known() -> None:
  named = {kind: how.name for kind, how in FORMATS.items()} | NOT_READ
  assert {q.value: q.name for q in Q} == {q.value: named.get(q.value) for q in Q}
  for q, (elements, nbytes) in gguf.GGML_QUANT_SIZES.items():
    if q.value in FORMATS and q.name not in WITHOUT_ORACLE:
      how = FORMATS[q.value]
      assert (q.name, how.elements, how.nbytes) == (q.name, elements, nbytes)


@pytest.mark.parametrize("kind", QUANTISED, ids=[FORMATS[k].name for k in QUANTISED])
def test_random_blocks(kind: int) -> None:
  """Of random bits, with floats that are infinite and no numbers among them."""
  blocks = random_blocks(kind, 30, kind)
  with np.errstate(all="ignore"):
    expected = gguf.quants.dequantize(blocks, Q(kind)).reshape(-1)
  found = ggml_data_to_tensor(Tensor(blocks.reshape(-1)), expected.size, kind).numpy()
  assert_same_bits(found, expected)


def test_a_file_that_the_package_wrote(tmp_path: Path) -> None:
  path = tmp_path / "model.gguf"
  writer = gguf.GGUFWriter(path, "llama")
  writer.add_block_count(7)
  writer.add_float32("general.half", 0.5)
  writer.add_array("tokenizer.ggml.tokens", ["a", "ß", ""])
  writer.add_tensor("plain", np.arange(6, dtype=np.float32).reshape(2, 3))
  expected = {}
  for kind in QUANTISED:
    how = FORMATS[kind]
    blocks = random_blocks(kind, 3, kind + 1).reshape(3, -1)
    with np.errstate(all="ignore"):
      expected[how.name] = gguf.quants.dequantize(blocks, Q(kind))
    writer.add_tensor(how.name, blocks, raw_dtype=Q(kind))
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  metadata, tensors = gguf_load(path)
  assert metadata["general.architecture"] == "llama" and metadata["llama.block_count"] == 7
  assert metadata["general.half"] == 0.5 and metadata["tokenizer.ggml.tokens"] == ["a", "ß", ""]
  assert list(tensors) == ["plain", *expected]
  assert tensors["plain"].tolist() == [[0, 1, 2], [3, 4, 5]]
  for name in ("IQ1_M", "IQ2_S", "IQ3_XXS", "NVFP4", "Q4_K"):
    assert_same_bits(tensors[name].to("REF").numpy(), expected[name])
  for name, value in expected.items():
    assert tensors[name].shape == value.shape


def test_the_module_has_the_packages_code_books() -> None:
  script = [sys.executable, str(ROOT / "integration/tables/ggml_codebooks.py")]
  done = subprocess.run(script, capture_output=True, text=True, check=False)
  assert done.returncode == 0, done.stderr
