"""PyTorch checkpoints without PyTorch: files put together here operation by operation, honest ones and others.

integration/tests/pytorch/test_files_torch.py reads what PyTorch itself writes.
"""

import builtins
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiny_tensor import Context, Tensor, dtypes
from tiny_tensor.nn.state import torch_load

FLOATS = struct.pack("<6f", 0, 1, 2, 3, 4, 5)


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


class Name:
  """A GLOBAL in what `push` writes."""

  def __init__(self, name: str) -> None:
    self.name = name


class Call:
  """A REDUCE, a persistent id where the function is None."""

  def __init__(self, function: str | None, *arguments: Any) -> None:
    self.function, self.arguments = function, arguments


def push(value: Any) -> bytes:
  """The operations of a pickle that put `value` on the stack."""
  if isinstance(value, Name):
    return b"c" + value.name.replace(" ", "\n").encode() + b"\n"
  if isinstance(value, Call):
    if value.function is None:
      return push(value.arguments) + b"Q"
    return push(Name(value.function)) + push(value.arguments) + b"R"
  if isinstance(value, tuple):
    return b"(" + b"".join(map(push, value)) + b"t"
  if isinstance(value, dict):
    return b"}(" + b"".join(push(k) + push(v) for k, v in value.items()) + b"u"
  return pickle.dumps(value, 2)[2:-1].replace(b"q\x00", b"")


def whole(value: Any) -> bytes:
  return b"\x80\x02" + push(value) + b"."


def storage(kind: str = "torch FloatStorage", count: int = 6, key: Any = "0") -> Call:
  return Call(None, "storage", Name(kind), key, "cpu", count)


def tensor(offset: Any = 0, shape: Any = (2, 3), strides: Any = (3, 1), of: Any = None) -> Call:
  hooks = Call("collections OrderedDict")
  return Call("torch._utils _rebuild_tensor_v2", of or storage(), offset, shape, strides, False, hooks)


def write(path: Path, value: Any, data: bytes = FLOATS, compress: int = zipfile.ZIP_STORED, **more: bytes) -> Path:
  pickled = value if isinstance(value, bytes) else whole(value)
  with zipfile.ZipFile(path, "w", compress) as archive:
    for name, content in ({"data.pkl": pickled, "data/0": data, "version": b"3\n"} | more).items():
      archive.writestr(f"archive/{name}", content)
  return path


def values(t: Any) -> Any:
  assert isinstance(t, Tensor)
  return t.tolist()


def test_views_share_a_mapped_storage(tmp_path: Path) -> None:
  state = {
    "whole": tensor(),
    "turned": tensor(0, (3, 2), (1, 3)),
    "part": tensor(2, (2,), (1,)),
    "gaps": tensor(1, (2, 2), (3, 1)),
    "repeated": tensor(4, (2, 2), (0, 1)),
    "overlapping": tensor(0, (3, 3), (1, 1)),
    "none": tensor(0, (0, 3), (3, 1)),
    "one": tensor(5, (), ()),
    "storage": storage(),
  }
  loaded = torch_load(write(tmp_path / "a.pt", state))
  assert {name: values(t) for name, t in loaded.items()} == {
    "whole": [[0, 1, 2], [3, 4, 5]],
    "turned": [[0, 3], [1, 4], [2, 5]],
    "part": [2, 3],
    "gaps": [[1, 2], [4, 5]],
    "repeated": [[4, 5], [4, 5]],
    "overlapping": [[0, 1, 2], [1, 2, 3], [2, 3, 4]],
    "none": [],
    "one": 5,
    "storage": [0, 1, 2, 3, 4, 5],
  }


def test_what_lies_in_order_is_mapped_and_read_later(tmp_path: Path) -> None:
  path = tmp_path / "a.pt"
  pickled = whole({"a": tensor()})
  headers = 30 + len("archive/data.pkl") + 30 + len("archive/data/0")
  write(path, pickled + bytes(-(headers + len(pickled)) % 4))  # so that the storage is aligned, as PyTorch sees to
  at = path.read_bytes().index(FLOATS)
  loaded = torch_load(path)["a"]
  assert str(loaded.device).startswith("DISK:")
  with path.open("r+b") as file:
    file.seek(at)
    file.write(struct.pack("<f", 9))
  assert values(loaded)[0][0] == 9


@pytest.mark.parametrize("compress", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_compressed_files(tmp_path: Path, compress: int) -> None:
  path = write(tmp_path / "a.pt", tensor(), compress=compress)
  for file in (path, Tensor(path), Tensor(path.read_bytes())):
    assert values(torch_load(file)) == [[0, 1, 2], [3, 4, 5]]
  with pytest.raises(ValueError, match="the tensor is not a valid PyTorch file"):
    torch_load(Tensor(b"abc"))


TYPES = [
  ("BoolStorage", dtypes.bool, b"\1\0", [True, False]),
  ("CharStorage", dtypes.int8, b"\xff\2", [-1, 2]),
  ("ByteStorage", dtypes.uint8, b"\xff\2", [255, 2]),
  ("ShortStorage", dtypes.int16, struct.pack("<2h", -3, 4), [-3, 4]),
  ("IntStorage", dtypes.int32, struct.pack("<2i", -3, 4), [-3, 4]),
  ("LongStorage", dtypes.int64, struct.pack("<2q", -(1 << 40), 4), [-(1 << 40), 4]),
  ("HalfStorage", dtypes.float16, struct.pack("<2e", 0.5, -2), [0.5, -2]),
  ("BFloat16Storage", dtypes.bfloat16, b"\x80\x3f\x00\xc0", [1, -2]),
  ("FloatStorage", dtypes.float32, struct.pack("<2f", 0.5, -2), [0.5, -2]),
  ("DoubleStorage", dtypes.float64, struct.pack("<2d", 0.1, -2), [0.1, -2]),
]


@pytest.mark.parametrize(("kind", "dtype", "data", "expected"), TYPES, ids=[t[0] for t in TYPES])
def test_storages_of_every_type(tmp_path: Path, kind: str, dtype: Any, data: bytes, expected: list[Any]) -> None:
  loaded = torch_load(write(tmp_path / "a.pt", tensor(0, (2,), (1,), storage(f"torch {kind}", 2)), data))
  assert (loaded.dtype, values(loaded)) == (dtype, expected)


@pytest.mark.parametrize(
  ("name", "dtype", "data", "expected"),
  [
    ("uint16", dtypes.uint16, b"\xff\xff\1\0", [65535, 1]),
    ("uint32", dtypes.uint32, struct.pack("<2I", 1 << 31, 4), [1 << 31, 4]),
    ("uint64", dtypes.uint64, struct.pack("<2Q", 1 << 63, 4), [1 << 63, 4]),
    ("float8_e4m3fn", dtypes.fp8e4m3, b"\x38\xc0", [1, -2]),
    ("float8_e5m2", dtypes.fp8e5m2, b"\x3c\xc0", [1, -2]),
  ],
)
def test_storages_of_bytes(tmp_path: Path, name: str, dtype: Any, data: bytes, expected: list[Any]) -> None:
  bare = storage("torch.storage UntypedStorage", len(data))
  call = Call("torch._utils _rebuild_tensor_v3", bare, 0, (2,), (1,), False, None, Name(f"torch {name}"))
  loaded = torch_load(write(tmp_path / "a.pt", call, data))
  assert (loaded.dtype, values(loaded)) == (dtype, expected)


def test_what_else_a_checkpoint_has(tmp_path: Path) -> None:
  state = {
    "epoch": 3,
    "size": Call("torch Size", (2, 3)),
    "device": Call("torch device", "cuda", 1),
    "dtype": Name("torch bfloat16"),
    "bytes": Call("_codecs encode", "a\xff", "latin1"),
    "parameter": Call("torch._utils _rebuild_parameter", tensor(), True, Call("collections OrderedDict")),
    7: (None, True, 0.5, [1, "é"], {"x": ()}),
  }
  loaded = torch_load(write(tmp_path / "a.pt", state))
  assert values(loaded.pop("parameter")) == [[0, 1, 2], [3, 4, 5]]
  assert loaded == {
    "epoch": 3,
    "size": (2, 3),
    "device": "cuda:1",
    "dtype": dtypes.bfloat16,
    "bytes": b"a\xff",
    7: (None, True, 0.5, [1, "é"], {"x": ()}),
  }


NUMPY_VALUES = [np.float64(0.1), np.float32(-2.5), np.float16(1.5), np.int8(-3), np.uint64(2**63), np.bool_(True)]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_numpy_scalars_and_arrays(tmp_path: Path, protocol: int) -> None:
  arrays = [
    np.arange(6, dtype=np.int16).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.array([1.5, -2.0], dtype=">f4"), np.array(7), np.zeros((0, 3), np.float32), np.array([True, False]),
  ]  # fmt: skip
  data: dict[str, Any] = {
    "scalars": [*NUMPY_VALUES, np.dtype(">i4").type(-5)],
    "arrays": arrays,
    "loss": np.float64("nan"),
  }
  loaded = torch_load(write(tmp_path / "a.pt", pickle.dumps(data, protocol)))
  found = loaded["scalars"]
  assert found == [v.item() for v in data["scalars"]] and [type(v) for v in found] == [
    type(v.item()) for v in data["scalars"]
  ]
  assert loaded["loss"] != loaded["loss"]
  for ours, array in zip(loaded["arrays"], arrays, strict=True):
    assert isinstance(ours, Tensor) and ours.shape == array.shape and ours.dtype.name == array.dtype.name
    assert ours.tolist() == array.tolist()


def numpy_dtype(name: Any = "f8") -> Call:
  return Call("numpy dtype", name, False, True)


@pytest.mark.parametrize(
  ("value", "message"),
  [
    (Call("numpy.core.multiarray scalar", numpy_dtype("O8"), b"12345678"), "NumPy dtype 'O8'"),
    (Call("numpy.core.multiarray scalar", numpy_dtype(3), b""), "NumPy dtype 3"),
    (
      Call("numpy.core.multiarray scalar", numpy_dtype(), Call("_codecs encode", "short", "latin1")),
      "5 bytes, expected 8",
    ),
    (Call("numpy.core.multiarray scalar", "f8", "x"), "a str stands in the place of a NumPy dtype"),
    (Call("numpy._core.numeric _frombuffer", 3, numpy_dtype(), (1,), "C"), "has a int, expected 8 bytes"),
    (Call("numpy._core.numeric _frombuffer", 3, numpy_dtype(), (-1,), "C"), "shape"),
    ([Call("numpy.core.multiarray _reconstruct", Name("numpy ndarray"), (0,), b"b")], "no elements"),
    (Call("numpy.core.multiarray fromstring", "x"), "fromstring"),
  ],
)
def test_lies_about_numpy(tmp_path: Path, value: Any, message: str) -> None:
  wrapped = {"x": value[0] if isinstance(value, list) else value}
  with pytest.raises(ValueError, match=message):
    torch_load(write(tmp_path / "a.pt", wrapped))


def test_every_protocol_of_pickle(tmp_path: Path) -> None:
  for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    shared = [1, 2]
    versions: OrderedDict[str, Any] = OrderedDict(b=1, a=(shared, shared))
    data: Any = {"a": versions, "f": 0.1, "n": -(1 << 70), "s": {1, 2}, "t": "ü" * 300, "e": {"x": [None, True]}}
    loaded = torch_load(write(tmp_path / "a.pt", pickle.dumps(data, protocol)))
    assert loaded == data and list(loaded["a"]) == ["b", "a"]
    assert loaded["a"]["a"][0] is loaded["a"]["a"][1]


def legacy(value: Any, *storages: tuple[str, int, bytes], tail: bytes = b"") -> bytes:
  system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}
  parts = [whole(0x1950A86A20F9469CFC6C), whole(1001), whole(system), whole(value), whole([s[0] for s in storages])]
  return b"".join(parts) + b"".join(struct.pack("<q", count) + data for _, count, data in storages) + tail


def old_storage(count: int = 6, part: Any = None) -> Call:
  return Call(None, "storage", Name("torch FloatStorage"), "0", "cpu", count, part)


def test_the_format_before_zip_archives(tmp_path: Path) -> None:
  path = tmp_path / "old.pt"
  state = {"a": tensor(of=old_storage()), "b": tensor(0, (2,), (1,), old_storage(6, ("view", 1, 4)))}
  path.write_bytes(legacy(state, ("0", 6, FLOATS)))
  loaded = torch_load(path)
  assert {name: values(t) for name, t in loaded.items()} == {"a": [[0, 1, 2], [3, 4, 5]], "b": [1, 2]}


class Exploit:
  """What runs a function of the attacker's choice where pickles are trusted."""

  def __init__(self, function: Any, *arguments: Any) -> None:
    self.how = (function, arguments)

  def __reduce__(self) -> Any:
    return self.how


EXPLOITS = [
  (Exploit(os.system, "echo owned > owned"), "system"),
  (Exploit(builtins.eval, "open('owned', 'w')"), "eval"),
  (Exploit(builtins.exec, "open('owned', 'w')"), "exec"),
  (Exploit(subprocess.check_output, ["touch", "owned"]), "check_output"),
  (Exploit(builtins.open, "owned", "w"), "open"),
  (Exploit(sys.modules["importlib"].import_module, "os"), "importlib.import_module"),
]


@pytest.mark.parametrize("old", [False, True], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(("exploit", "name"), EXPLOITS, ids=[e[1] for e in EXPLOITS])
def test_exploits_are_refused_by_name(
  tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exploit: Exploit, name: str, protocol: int, old: bool
) -> None:
  monkeypatch.chdir(tmp_path)
  attack = pickle.dumps({"weight": [exploit]}, protocol)
  path = tmp_path / "evil.pt"
  if old:
    honest = legacy(0)
    path.write_bytes(honest.replace(whole(0), attack, 1))
  else:
    write(path, attack)
  with pytest.raises(ValueError, match=rf"at byte \d+ of the pickle.*{name}"):
    torch_load(path)
  assert os.listdir(tmp_path) == ["evil.pt"]


MALICIOUS = [
  ("a path through what is allowed", push(Name("torch._utils _rebuild_tensor_v2.__globals__")) + b".", "__globals__"),
  ("attributes of an allowed name", b"\x8c\x05torch\x8c\x0cSize.__mro__\x93.", "Size.__mro__"),
  ("a class by its name", b"(S'id'\nios\nsystem\n.", "INST"),
  ("an object of a class", push(Name("torch Size")) + b")\x81.", "NEWOBJ"),
  ("an extension code", b"\x82\x01.", "EXT1"),
  ("attributes of a container", push(Call("collections OrderedDict")) + push({"items": 1}) + b"b.", "items"),
  ("attributes of a tensor", push(tensor()) + push({"uop": 1}) + b"b.", "uop"),
  ("attributes of a dict", b"}" + push({"_metadata": 1}) + b"b.", "_metadata"),
  ("a call of data", push("text") + b")R.", "calls a str"),
  ("a call of a dtype", push(Name("torch float32")) + b")R.", "calls a DType"),
  ("a call without a tuple", push(Name("torch Size")) + b"]R.", "expected a tuple"),
  ("a function as data", push([1]) + push(Name("torch device")) + b"a.", "used as a value"),
  ("a function as result", push(Name("torch device")) + b".", "used as a value"),
  ("an encoding", push(Call("_codecs encode", "a", "rot13")) + b".", "rot13"),
  ("a set of lists", push(Call("builtins set", [[1]])) + b".", "set"),
  ("a huge memo index", b"]r\xff\xff\xff\xff" + b"j\xfe\xff\xff\xff.", "LONG_BINPUT at byte 1 .*place 4294967295"),
  ("bytes that are not there", b"\x8e" + struct.pack("<Q", 1 << 40) + b"a.", "bytes"),
  ("text that is not there", b"X\xff\xff\xff\x7fab.", "2147483647"),
  ("an endless number", b"I" + b"9" * 10_000 + b"\n.", "INT|first"),
  ("no end", b"]", "pickle"),
  ("an unknown operation", b"\xfe.", "pickle"),
  ("too much on the stack", b"]]." , "STOP"),
  ("nothing on the stack", b"0.", "POP at byte 0"),
  ("no mark", b"]t.", "MARK"),
  ("a mark as operand", b"](a.", "MARK"),
  ("half an item", b"}(K\x01u.", "no value"),
  ("items for a list", b"](K\x01K\x02u.", "dict"),
  ("keys that take long to hash", b"}((K\x01tt]s.", "key"),
]  # fmt: skip


@pytest.mark.parametrize(("pickled", "message"), [m[1:] for m in MALICIOUS], ids=[m[0] for m in MALICIOUS])
def test_malicious_pickles(tmp_path: Path, pickled: bytes, message: str) -> None:
  with pytest.raises(ValueError, match=message) as caught:
    torch_load(write(tmp_path / "evil.pt", pickled))
  assert "evil.pt" in str(caught.value)


def test_nested_deeply(tmp_path: Path) -> None:
  loaded = torch_load(write(tmp_path / "a.pt", b"]" * 20_000 + b"a" * 19_999 + b"."))
  assert isinstance(loaded, list) and isinstance(loaded[0], list)


LIES = [
  ("shape behind the storage", tensor(0, (3, 3), (3, 1)), "element 8 of a storage of 6"),
  ("offset behind the storage", tensor(6, (1,), (1,)), "element 6"),
  ("huge strides", tensor(0, (2,), (1 << 70,)), "reaches element"),
  ("negative offset", tensor(-1), "offset"),
  ("negative size", tensor(0, (-1, 3)), "shape"),
  ("negative stride", tensor(0, (2, 3), (-3, 1)), "strides"),
  ("fractional size", tensor(0, (2.0, 3)), "shape"),
  ("true as size", tensor(0, (True, 3)), "shape"),
  ("more strides than axes", tensor(0, (2,), (3, 1)), "expected as many"),
  ("no storage", tensor(of=5), "int"),
  ("storage larger than its file", tensor(of=storage(count=7)), "takes 28 bytes, at byte .* lie 24"),
  ("storage smaller than its file", tensor(of=storage(count=5)), "takes 20 bytes"),
  ("storage of another type", (tensor(), storage("torch ByteStorage", 24)), "float32 in one place"),
  ("storage that is missing", storage(key="1"), "'1' is not in the archive"),
  ("key that is a path", storage(key="../../etc/passwd"), "not in the archive"),
  ("key that is a number", storage(key=0), "persistent id"),
  ("negative count", storage(count=-6), "persistent id"),
  ("unknown storage", storage("torch QInt8Storage"), "torch.QInt8Storage"),
  ("persistent id of nested lists", b"]q\x01" + b"h\x01h\x01\x86q\x01" * 50 + b"Q.", "persistent id"),
  ("shape of nested lists", Call("torch Size", {"": ()}), "a size is"),
  ("persistent id of another kind", Call(None, "module", "x"), "persistent id"),
]


@pytest.mark.parametrize(("value", "message"), [x[1:] for x in LIES], ids=[x[0] for x in LIES])
def test_lies_about_storages(tmp_path: Path, value: Any, message: str) -> None:
  with pytest.raises(ValueError, match=message):
    torch_load(write(tmp_path / "a.pt", value))


def test_lies_of_the_format_before_zip_archives(tmp_path: Path) -> None:
  path = tmp_path / "old.pt"
  state = {"a": tensor(of=old_storage())}
  for content, message in (
    (legacy(state, ("0", 5, FLOATS)), "has 5 elements"),
    (legacy(state, ("0", 6, FLOATS[:-1])), "the file has"),
    (legacy(state, ("1", 6, FLOATS)), "list of storages"),
    (legacy(state, ("0", 6, FLOATS), ("1", 6, FLOATS)), "'1' at byte"),
    (legacy(state, ("0", 6, FLOATS)).replace(whole(["0"]), whole([[]])), "list of storages"),
    (whole(1) + whole(1001), "neither"),
    (b"", "neither"),
    (b"some text", "neither"),
  ):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
      torch_load(path)


def test_truncations(tmp_path: Path) -> None:
  path = write(tmp_path / "a.pt", {"a": tensor()})
  content = path.read_bytes()
  path = tmp_path / "b.pt"
  for length in range(0, len(content), 7):
    path.write_bytes(content[:length])
    with pytest.raises(ValueError, match=r"b\.pt"):
      torch_load(path)
  content = legacy({"a": tensor(of=old_storage())}, ("0", 6, FLOATS))
  for length in range(0, len(content), 7):
    path.write_bytes(content[:length])
    with pytest.raises(ValueError, match=r"b\.pt"):
      torch_load(path)


def test_other_byte_orders_and_archives(tmp_path: Path) -> None:
  with pytest.raises(ValueError, match="big"):
    torch_load(write(tmp_path / "a.pt", tensor(), byteorder=b"big"))
  with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
    archive.writestr("readme", b"text")
  with pytest.raises(ValueError, match=r"0 files NAME/data\.pkl"):
    torch_load(tmp_path / "a.pt")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=st.booleans(), changes=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_files_are_errors_or_data(tmp_path: Path, old: bool, changes: list[tuple[int, int]]) -> None:
  path = tmp_path / "a.pt"
  if old:
    path.write_bytes(legacy({"a": tensor(of=old_storage()), "n": [1, 2.5, "x"]}, ("0", 6, FLOATS)))
  else:
    write(path, {"a": tensor(), "n": [1, 2.5, "x"]})
  content = bytearray(path.read_bytes())
  for at, byte in changes:
    content[at % len(content)] = byte
  path.write_bytes(content)
  try:
    torch_load(path)
  except ValueError as error:
    assert "a.pt" in str(error)
