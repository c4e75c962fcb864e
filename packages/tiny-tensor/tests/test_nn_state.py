"""State dicts and safetensors files."""

import gc
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_runtime import GlobalCounters, buffer_of
from tiny_tensor import Context, Tensor, dtypes, nn
from tiny_tensor.jit import Repeated
from tiny_tensor.nn.state import (
  Slab,
  get_parameters,
  get_state_dict,
  load_state_dict,
  safe_load,
  safe_load_metadata,
  safe_save,
)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


class Pair(NamedTuple):
  left: Tensor
  right: Tensor


class Model:
  def __init__(self) -> None:
    self.linear = nn.Linear(3, 2)
    self.layers = [nn.Linear(2, 2, bias=False), Tensor.relu, {"scale": Tensor([2.0])}]
    self.pair = Pair(Tensor([1.0]), Tensor([2.0]))
    self.name = "model"
    self.me = self


NAMES = ["linear.weight", "linear.bias", "layers.0.weight", "layers.2.scale", "pair.left", "pair.right"]


def test_state_dict_names_every_tensor_once() -> None:
  model = Model()
  assert list(get_state_dict(model)) == NAMES
  assert list(get_state_dict(model, prefix="m.")) == [f"m.{name}" for name in NAMES]
  assert get_parameters(model)[0] is model.linear.weight


ALL = list(dtypes.all)


@pytest.mark.parametrize("dtype", ALL, ids=lambda d: d.name)
def test_every_dtype_comes_back_exactly(tmp_path: Path, dtype: Any) -> None:
  values = [0, 1, 1, 0, 1, 1] if dtype is dtypes.bool else [0, 1, 2, 3, 6, 8]
  t = Tensor(values, dtype=dtype).reshape(2, 3)
  safe_save({"t": t, "odd": Tensor([True])}, tmp_path / "a.safetensors")
  loaded = safe_load(tmp_path / "a.safetensors")["t"]
  assert (loaded.dtype, loaded.shape) == (dtype, (2, 3))
  assert loaded.to("REF").tolist() == t.tolist()


def test_shapes_views_and_metadata(tmp_path: Path) -> None:
  path = tmp_path / "a.safetensors"
  base = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
  saved = {
    "empty": Tensor.zeros(0, 3),
    "scalar": Tensor(2.5),
    "transposed": base.transpose(),
    "part": base[1, 1:],
    "lazy": base * 2,
    "constant": Tensor.full((2, 2), 7),
  }
  safe_save(saved, path, metadata={"format": "pt", "ünï": "cödé"})
  loaded = safe_load(path)
  assert {k: t.to("REF").tolist() for k, t in loaded.items()} == {k: t.tolist() for k, t in saved.items()}
  assert {k: t.shape for k, t in loaded.items()} == {k: t.shape for k, t in saved.items()}
  whole, start, header = safe_load_metadata(path)
  assert header["__metadata__"] == {"format": "pt", "ünï": "cödé"}
  assert (whole.dtype, start % 8) == (dtypes.uint8, 0)


def test_the_format_is_the_published_one(tmp_path: Path) -> None:
  """A file written here by hand, byte for byte as the specification has it, and the one we write read by hand."""
  path = tmp_path / "a.safetensors"
  # 13 bytes of data and an odd header, so nothing is aligned
  header = (
    b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[3],"data_offsets":[1,13]}}'
  )
  header += b" " * (1 - len(header) % 2)
  path.write_bytes(len(header).to_bytes(8, "little") + header + b"\x07" + bytes.fromhex("0000803f 00000040 000040c0"))
  loaded = safe_load(path)
  assert loaded["a"].to("REF").tolist() == [7]
  assert loaded["b"].to("REF").tolist() == [1.0, 2.0, -3.0]
  safe_save({"x": Tensor([1, -2], dtype=dtypes.int16)}, path)
  raw = path.read_bytes()
  length = int.from_bytes(raw[:8], "little")
  assert json.loads(raw[8 : 8 + length]) == {"x": {"dtype": "I16", "shape": [2], "data_offsets": [0, 4]}}
  assert raw[8 + length :] == bytes.fromhex("0100 feff")


def test_saving_is_all_or_nothing(tmp_path: Path) -> None:
  path = tmp_path / "a.safetensors"
  safe_save({"x": Tensor([1.0])}, path)
  before = path.read_bytes()
  bad = Tensor([1.0, 2.0])
  with pytest.raises(RuntimeError):
    safe_save({"x": Tensor([5.0]), "y": bad.to("NOWHERE")}, path)
  assert path.read_bytes() == before
  assert os.listdir(tmp_path) == ["a.safetensors"], "no temporary file is left behind"
  with pytest.raises(FileNotFoundError, match="missing"):
    safe_save({"x": Tensor([1.0])}, tmp_path / "missing" / "a.safetensors")
  with pytest.raises(TypeError, match="3"):
    safe_save({"x": Tensor([1.0])}, path, metadata={"a": 3})  # type: ignore[dict-item]


def test_loaded_tensors_outlive_their_file_name(tmp_path: Path) -> None:
  path = tmp_path / "a.safetensors"
  safe_save({"x": Tensor([1.0, 2.0])}, path)
  old = safe_load(path)["x"]
  safe_save({"x": Tensor([3.0, 4.0])}, path)
  assert old.to("REF").tolist() == [1.0, 2.0]
  assert safe_load(path)["x"].to("REF").tolist() == [3.0, 4.0]


def entry(**changes: Any) -> dict[str, Any]:
  return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes}


BROKEN: list[tuple[str, Any, bytes, str]] = [
  ("truncated data", entry(), b"1234", "truncated"),
  ("data appended", entry(), b"123456789", "appended"),
  ("not JSON", b"{nonsense", b"", "JSON"),
  ("not text", b"\xff\xfe\xfd", b"", "JSON"),
  ("not an object", b"[1, 2]", b"", "list"),
  ("unknown dtype", entry(dtype="F31"), b"12345678", "'F31'"),
  ("dtype is no text", entry(dtype=["F32"]), b"12345678", "unknown dtype"),
  ("negative size", entry(shape=[-2]), b"12345678", "-2"),
  ("fractional size", entry(shape=[2.0]), b"12345678", "2.0"),
  ("true as size", entry(shape=[True, 2]), b"12345678", "True"),
  ("shape and offsets differ", entry(shape=[3]), b"12345678", "12 bytes"),
  ("huge shape", entry(shape=[1 << 62, 4]), b"12345678", "bytes"),
  ("offset behind the end", entry(data_offsets=[8, 16]), b"12345678", "16"),
  ("offsets reversed", entry(data_offsets=[8, 0]), b"12345678", "-8"),
  ("three offsets", entry(data_offsets=[0, 4, 8]), b"12345678", "begin, end"),
  ("a hole", entry(data_offsets=[4, 12]), b"123456789012", "begins at byte 4"),
  ("an overlap", entry() | {"y": entry(data_offsets=[4, 12])["x"]}, b"123456789012", "overlap"),
  ("a field missing", {"x": {"dtype": "F32", "shape": [2]}}, b"12345678", "data_offsets"),
  ("entry is no object", {"x": 5}, b"12345678", "5"),
  ("metadata is no text", entry() | {"__metadata__": {"a": 1}}, b"12345678", "__metadata__"),
  ("name twice", b'{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{}}', b"", "twice"),
  ("nested deeply", b"[" * 100_000, b"", "nested|JSON"),
]


@pytest.mark.parametrize(("header", "data", "message"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_lying_headers(tmp_path: Path, header: Any, data: bytes, message: str) -> None:
  path = tmp_path / "broken.safetensors"
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  path.write_bytes(len(text).to_bytes(8, "little") + text + data)
  with pytest.raises(ValueError, match=message) as caught:
    safe_load(path)
  assert "broken.safetensors" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"1234567", (1 << 62).to_bytes(8, "little"), b"\x10" + bytes(7) + b"{}"])
def test_truncated_headers(tmp_path: Path, content: bytes) -> None:
  path = tmp_path / "broken.safetensors"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=r"broken\.safetensors"):
    safe_load(path)


def test_every_truncation_of_a_file_is_an_error(tmp_path: Path) -> None:
  path = tmp_path / "a.safetensors"
  safe_save({"x": Tensor([1.0, 2.0])}, path)
  whole = path.read_bytes()
  for length in range(len(whole)):
    path.write_bytes(whole[:length])
    with pytest.raises(ValueError, match="safetensors"):
      safe_load(path)


def save_shards(folder: Path, **index: Any) -> Path:
  safe_save({"a": Tensor([1.0]), "b": Tensor([2])}, folder / "model-1.safetensors")
  safe_save({"c": Tensor([[3.0]])}, folder / "model-2.safetensors")
  places = {"c": "model-2.safetensors", "a": "model-1.safetensors", "b": "model-1.safetensors"}
  path = folder / "model.safetensors.index.json"
  path.write_text(json.dumps({"metadata": {"total_size": 12}, "weight_map": places | index}))
  return path


def test_a_model_in_several_files(tmp_path: Path) -> None:
  loaded = safe_load(save_shards(tmp_path))
  assert {name: t.to("REF").tolist() for name, t in loaded.items()} == {"c": [[3.0]], "a": [1.0], "b": [2]}


@pytest.mark.parametrize(
  ("place", "message"),
  [
    ("model-2.safetensors", "'x'.*does not have it"),
    ("../model-1.safetensors", "next to it"),
    ("/etc/passwd", "next to it"),
    ("..\\x", "next to it"),
    (5, "next to it"),
    *((name, "next to it") for name in ("", ".", "..", "a\0b", "\ud800", "a/b")),
  ],
)
def test_an_index_that_lies(tmp_path: Path, place: Any, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    safe_load(save_shards(tmp_path, x=place))


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"weight_map": []}', b"[" * 100_000, b'{"a":1,"a":1}'])
def test_an_index_that_is_none(tmp_path: Path, content: bytes) -> None:
  (tmp_path / "broken.json").write_bytes(content)
  with pytest.raises(ValueError, match=r"broken\.json"):
    safe_load(tmp_path / "broken.json")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_are_errors_or_tensors(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
  path = tmp_path / "a.safetensors"
  safe_save({"x": Tensor([1.0, 2.0]), "y": Tensor([[True]])}, path, metadata={"k": "v"})
  content = bytearray(path.read_bytes())
  for at, byte in changes:
    content[at % len(content)] = byte
  path.write_bytes(content)
  try:
    loaded = safe_load(path)
  except ValueError as error:
    assert "a.safetensors" in str(error)
  else:
    assert sum(t.numel() * t.dtype.itemsize for t in loaded.values()) == 9


def test_narrow_floats_are_looked_at_from_the_file(tmp_path: Path) -> None:
  for dtype in (dtypes.bfloat16, *dtypes.fp8s):
    safe_save({"x": Tensor([1.0, -2.0], dtype=dtype)}, tmp_path / "a.safetensors")
    loaded = safe_load(tmp_path / "a.safetensors")["x"]
    assert (str(loaded.device)[:5], loaded.tolist()) == ("DISK:", [1.0, -2.0])


def test_missing_file(tmp_path: Path) -> None:
  with pytest.raises(FileNotFoundError, match="nothing"):
    safe_load(tmp_path / "nothing.safetensors")


def test_a_model_loads_what_another_saved(tmp_path: Path) -> None:
  one, two = Model(), Model()
  x = Tensor([[1.0, 2.0, 3.0]])
  safe_save(get_state_dict(one), tmp_path / "m.safetensors")
  weight = two.linear.weight
  loaded = load_state_dict(two, safe_load(tmp_path / "m.safetensors"), verbose=False)
  assert two.linear(x).tolist() == one.linear(x).tolist()
  assert two.linear.weight is weight and weight in loaded, "the model's own tensors are assigned to"
  assert weight.device == "REF"


def test_loading_converts_floats_only(capsys: pytest.CaptureFixture[str]) -> None:
  layer = nn.Linear(2, 1)
  state = {"weight": Tensor([[1.5, 2.5]], dtype=dtypes.float16), "bias": Tensor([0.5], dtype=dtypes.float64)}
  load_state_dict(layer, state)
  assert layer.weight.dtype is dtypes.float32
  assert layer.weight.tolist() == [[1.5, 2.5]]
  assert "2 tensors" in capsys.readouterr().out


def changed(**changes: list[Any] | None) -> Callable[[nn.Linear], dict[str, Tensor]]:
  def make(layer: nn.Linear) -> dict[str, Tensor]:
    kept = {k: t for k, t in get_state_dict(layer).items() if k not in changes}
    return kept | {k: Tensor(values) for k, values in changes.items() if values is not None}

  return make


@pytest.mark.parametrize(
  ("make", "kind", "message"),
  [
    (changed(bias=None), KeyError, "missing bias"),
    (changed(extra=[1.0]), KeyError, "not in the model extra"),
    (changed(weight=[[1.0, 2.0, 3.0]]), ValueError, r"'weight'.*\(1, 2\).*\(1, 3\)"),
    (changed(weight=[[1, 2]]), TypeError, "'weight'.*float32.*int32"),
  ],
)
def test_a_state_dict_that_does_not_fit_changes_nothing(
  make: Callable[[nn.Linear], dict[str, Tensor]], kind: type[Exception], message: str
) -> None:
  layer = nn.Linear(2, 1)
  layer.weight.assign(Tensor([[1.0, 2.0]])).realize()
  state = make(layer)
  with pytest.raises(kind, match=message):
    load_state_dict(layer, state, verbose=False)
  assert layer.weight.tolist() == [[1.0, 2.0]]


def test_loading_a_part_and_consuming() -> None:
  layer = nn.Linear(2, 1)
  state = {"weight": Tensor([[1.0, 2.0]]), "extra": Tensor([1.0])}
  loaded = load_state_dict(layer, state, strict=False, verbose=False, consume=True)
  assert loaded == [layer.weight] and not state
  assert layer.weight.tolist() == [[1.0, 2.0]]


def test_counters_of_batches_may_be_left_over() -> None:
  norm = nn.BatchNorm(1, track_running_stats=False)
  model = [nn.Linear(2, 1), norm]
  state = {name: t + 1 for name, t in get_state_dict(model).items()}
  extra = {"1.num_batches_tracked": Tensor(3), "num_batches_tracked": Tensor([3])}
  assert len(load_state_dict(model, state | extra, verbose=False)) == 4
  assert norm.weight is not None and norm.weight.tolist() == [2]
  with pytest.raises(KeyError, match="missing bias, num_batches_tracked"):
    load_state_dict(nn.BatchNorm(1), {"weight": Tensor([1.0])}, verbose=False)
  with pytest.raises(KeyError, match="not in the model batches_tracked"):
    load_state_dict(model, state | {"batches_tracked": Tensor(3)}, verbose=False)


def test_objects_whose_dictionary_is_none_have_no_parts() -> None:
  """A library that cffi has loaded is one: what it calls `__dict__` is a function."""

  class Library:
    __dict__ = property(lambda self: print)

  class Model:
    def __init__(self) -> None:
      self.library, self.weight = Library(), Tensor([1.0])

  assert list(get_state_dict(Model())) == ["weight"]


def test_a_slab_has_tensors_side_by_side_in_one_piece_of_memory() -> None:
  slab = Slab(1 << 16)
  given = [
    Tensor.arange(n * 5).reshape(n, 5).cast(dtype).realize() for n, dtype in ((3, dtypes.uint8), (40, "float32"))
  ]
  before = [t.numpy() for t in given]
  moved = [slab.put(t) for t in given]
  assert [(t.shape, t.dtype) for t in moved] == [(t.shape, t.dtype) for t in given]
  buffers = [buffer_of(t.uop.base) for t in moved]
  assert buffers[0].base is buffers[1].base and [b.offset for b in buffers] == [0, Slab.ALIGNMENT]
  moved[0] += 1
  assert (moved[0].numpy() == before[0] + 1).all() and (moved[1].numpy() == before[1]).all()
  assert (given[0].numpy() == before[0]).all(), "it is a copy"


def test_pieces_of_a_slab_go_with_their_tensors() -> None:
  gc.collect()
  slab, before = Slab(4096), GlobalCounters.mem_used
  many = [slab.put(Tensor([float(n)])) for n in range(20)]  # 16 in a piece
  assert GlobalCounters.mem_used - before == 2 * 4096
  assert [t.item() for t in many] == [float(n) for n in range(20)]
  del many[:16]
  gc.collect()
  assert GlobalCounters.mem_used - before == 4096
  del slab
  gc.collect()
  assert [t.item() for t in many] == [16.0, 17.0, 18.0, 19.0], "tensors keep their piece"
  del many
  gc.collect()
  assert GlobalCounters.mem_used == before


def test_a_slab_leaves_alone_what_needs_none() -> None:
  large, nothing = Tensor.zeros(1024).contiguous(), Tensor.zeros(0, 3)
  slab = Slab(4096)
  assert slab.put(large) is large and slab.put(nothing) is nothing
  split = Tensor.zeros(4, 2).shard(("REF", "REF:1"), axis=0)
  assert slab.put(split) is split
  with pytest.raises(ValueError, match="256 bytes or more, not 100"):
    Slab(100)


def test_arguments_in_a_slab_are_not_copied() -> None:
  slab = Slab()
  layers = [slab.put(Tensor([float(n), 1.0])) for n in range(4)]
  step = Repeated(lambda x, w: (x * w).realize())
  kernels = []
  for w in layers:
    before = GlobalCounters.kernel_count
    assert step(Tensor([2.0, 3.0]).realize(), w).tolist() == [2 * w.tolist()[0], 3.0]
    kernels.append(GlobalCounters.kernel_count - before)
  assert kernels == [1] * 4
