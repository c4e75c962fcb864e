"""Files that are made to take long: families of them, by the size of what is in them."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_tensor import Tensor
from tiny_tensor.nn import datasets, state

PRIME = (1 << 61) - 1
"""Integers that differ by it have the same hash."""


def integer(value: int) -> bytes:
  """The operation that pushes it."""
  return pickle.dumps(value, 2)[2:-1]


def text(value: str) -> bytes:
  return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def name(module: str, attribute: str) -> bytes:
  return f"c{module}\n{attribute}\n".encode()


def put(place: int) -> bytes:
  return b"r" + struct.pack("<I", place)


def get(place: int) -> bytes:
  return b"j" + struct.pack("<I", place)


def collisions(n: int) -> list[bytes]:
  return [integer(i * PRIME) for i in range(1, n + 1)]


def tuples(n: int) -> list[bytes]:
  """A tuple's hash is made of those of its members."""
  return [integer(i * PRIME) + b"\x85" for i in range(1, n + 1)]


def dictionary(keys: list[bytes]) -> bytes:
  return b"}(" + b"".join(key + b"N" for key in keys) + b"u"


def pairs(keys: list[bytes]) -> bytes:
  return b"](" + b"".join(key + b"N\x86" for key in keys) + b"e"


def again(first: bytes, use: bytes, n: int) -> bytes:
  """A value, and n uses of it that nobody keeps."""
  return first + put(0) + b"0" + (use + b"0") * n + b"N"


TWICE = (
  put(0) + b"0" + name("collections", "OrderedDict") + b")R" + text("a") + get(0) + b"s" + text("b") + get(0) + b"s"
)
"""A dict that has what was on the stack twice."""

PICKLES: dict[str, tuple[int, Callable[[int], bytes]]] = {
  "keys that collide": (2000, lambda n: dictionary(collisions(n))),
  "keys that collide in slots": (5000, lambda n: dictionary([integer((i << 44) - 3) for i in range(1, n + 1)])),
  "tuples that collide": (2000, lambda n: dictionary(tuples(n))),
  "floats as keys": (2000, lambda n: dictionary([b"G" + struct.pack(">d", i * float(1 << 61)) for i in range(n)])),
  "items of a set that collide": (2000, lambda n: b"\x8f(" + b"".join(collisions(n)) + b"\x90"),
  "items of a frozenset that collide": (2000, lambda n: b"(" + b"".join(tuples(n)) + b"\x91"),
  "items of a called set that collide": (
    2000,
    lambda n: name("builtins", "set") + b"](" + b"".join(collisions(n)) + b"e\x85R",
  ),
  "pairs that collide": (2000, lambda n: name("collections", "OrderedDict") + pairs(collisions(n)) + b"\x85R"),
  "places of the memo that collide": (
    2000,
    lambda n: b"N" + b"".join(b"p" + str(i * PRIME).encode() + b"\n" for i in range(1, n + 1)),
  ),
  "a long tuple as the key of each": (
    5000,
    lambda n: again(b"(" + b"K\x01" * n + b"t", b"}" + get(0) + b"Ns", n),
  ),
  "a long integer as the key of each": (
    40000,
    lambda n: again(b"\x8b" + struct.pack("<I", n) + b"\x01" * n, b"}" + get(0) + b"Ns", n),
  ),
  "a list made a dict again and again": (
    800,
    lambda n: again(pairs([text(f"{i}") for i in range(n)]), name("collections", "OrderedDict") + get(0) + b"\x85R", n),
  ),
  "a list made a set again and again": (
    2000,
    lambda n: again(b"](" + b"".join(map(integer, range(n))) + b"e", name("builtins", "set") + get(0) + b"\x85R", n),
  ),
  "a list made a size again and again": (
    2000,
    lambda n: again(b"](" + b"K\x01" * n + b"e", name("torch", "Size") + get(0) + b"\x85R", n),
  ),
  "a text made bytes again and again": (
    500,
    lambda n: again(text("x" * n * 512), name("_codecs", "encode") + get(0) + text("latin1") + b"\x86R", n),
  ),
  "an array made again and again": (
    1000,
    lambda n: again(
      b"B" + struct.pack("<I", 512 * n) + b"x" * 512 * n,
      name("numpy._core.numeric", "_frombuffer")
      + b"("
      + get(0)
      + name("numpy", "dtype")
      + text("u1")
      + b"\x85R"
      + integer(512 * n)
      + b"\x85"
      + text("C")
      + b"tR",
      n,
    ),
  ),
  "places of elements again and again": (
    100,
    lambda n: (
      name("torch._utils", "_rebuild_tensor")
      + put(0)
      + b"0"
      + b"(("
      + text("storage")
      + name("torch", "FloatStorage")
      + text("0")
      + text("cpu")
      + b"K\x04tQ"
      + b"K\x00(K\x02K\x01t(K\x03K\x03tt"
      + put(1)
      + b"0"
      + b"h\x00h\x01R0" * n
      + b"N"
    ),
  ),
  "tuples of the one before, twice": (2000, lambda n: b"N" + b"2\x86" * n),
  "a name of tuples of the one before, twice": (6, lambda n: b"N" + b"2\x86" * n + text("x") + b"\x93"),
  "a device of dicts of the one before, twice": (
    6,
    lambda n: (
      name("torch", "device")
      + b"N"
      + (
        put(0)
        + b"0"
        + name("collections", "OrderedDict")
        + b")R"
        + text("a")
        + get(0)
        + b"s"
        + text("b")
        + get(0)
        + b"s"
      )
      * n
      + b"\x85R"
    ),
  ),
  "a dtype of dicts of the one before, twice": (
    6,
    lambda n: (
      name("numpy", "dtype")
      + b"N"
      + (
        put(0)
        + b"0"
        + name("collections", "OrderedDict")
        + b")R"
        + text("a")
        + get(0)
        + b"s"
        + text("b")
        + get(0)
        + b"s"
      )
      * n
      + b"\x85R"
    ),
  ),
  "marks": (5000, lambda n: b"(" * n + b"t" * n),
  "lists in lists": (5000, lambda n: b"]" * n + b"a" * (n - 1)),
  "digits": (40000, lambda n: b"I" + b"9" * n + b"\n"),
  "axes": (
    2000,
    lambda n: again(
      b"(" + b"K\x01" * n + b"t",
      name("torch._utils", "_rebuild_tensor")
      + b"("
      + b"("
      + text("storage")
      + name("torch", "FloatStorage")
      + text("0")
      + text("cpu")
      + b"K\x04tQK\x00"
      + get(0) * 2
      + b"tR",
      n,
    ),
  ),
}
"""Operations of a pickle: how many of something, and the operations for as many."""


def checkpoint(operations: bytes) -> bytes:
  """A file as `torch.save` writes it, with a storage of four floats."""
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w") as archive:
    archive.writestr("x/data.pkl", b"\x80\x02" + operations + b".")
    archive.writestr("x/data/0", bytes(16))
  return out.getvalue()


def in_checkpoint(make: Callable[[int], bytes]) -> Callable[[int], bytes]:
  return lambda n: checkpoint(make(n))


def legacy(operations: bytes) -> bytes:
  """One as it wrote them before."""
  first = [pickle.dumps(v, 2) for v in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
  return b"".join(first) + b"\x80\x02" + operations + b"." + pickle.dumps(["0"], 2) + struct.pack("<q", 4) + bytes(16)


def safetensors(header: bytes, size: int = 0) -> bytes:
  return len(header).to_bytes(8, "little") + header + bytes(size)


def repeated(n: int) -> bytes:
  """JSON with a name that is there twice, behind many that are not."""
  return b"{" + b",".join(b'"%d":0' % i for i in range(n)) + b',"x":0,"x":0}'


def small_tensors(n: int) -> bytes:
  entry = '"layer.{}":{{"dtype":"F32","shape":[2,2],"data_offsets":[{},{}]}}'
  header = "{" + ",".join(entry.format(i, 16 * i, 16 * i + 16) for i in range(n)) + "}"
  return safetensors(header.encode() + b" " * (-len(header) % 8), 16 * n)  # aligned, as those who write it do


def gguf(
  tensors: Sequence[tuple[str, tuple[int, ...]]], metadata: bytes = b"", entries: int = 0, data: int = 0
) -> bytes:
  infos = b"".join(
    struct.pack("<Q", len(key)) + key.encode() + struct.pack(f"<I{len(s)}QIQ", len(s), *s, 0, 0) for key, s in tensors
  )
  head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), entries) + metadata + infos
  return head + bytes(-len(head) % 32)


def quantised(n: int) -> bytes:
  """Tensors of one block of Q2_K each."""
  infos = b"".join(struct.pack("<Q", 4) + b"%04d" % i + struct.pack("<IQIQ", 1, 256, 10, 96 * i) for i in range(n))
  head = b"GGUF" + struct.pack("<IQQ", 3, n, 0) + infos
  return head + bytes(-len(head) % 32 + 96 * n)


def arrays_in_arrays(n: int) -> bytes:
  empty = struct.pack("<IQ", 4, 0)
  return gguf([], struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 9, n) + empty * n, 1)


def zipped(n: int, extra: int = 0) -> bytes:
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w") as archive:
    for i in range(n):
      info = zipfile.ZipInfo(f"a{i}")
      info.extra = struct.pack("<HH", 0x4242, 0) * (extra // 4)
      archive.writestr(info, b"content")
  return out.getvalue()


def npz(n: int) -> bytes:
  array = npy("(2, 2)", 16)
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w") as archive:
    for i in range(n):
      archive.writestr(f"array{i}.npy", array)
  return out.getvalue()


def npy(shape: str, size: int = 0) -> bytes:
  text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
  return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text + bytes(size)


def tarred(members: list[tuple[bytes, bytes, bytes]]) -> bytes:
  """An archive of (type, name, content)."""
  out = []
  for kind, named, content in members:
    info = tarfile.TarInfo(named.decode())
    info.type, info.size = kind, len(content)
    out += [info.tobuf(tarfile.USTAR_FORMAT), content, bytes(-len(content) % 512)]
  return b"".join(out) + bytes(1024)


def records(n: int) -> bytes:
  """Fields of a pax header."""
  return b"".join(b"14 k%07d=x\n" % i for i in range(n))


def load_bytes(load: Callable[[Any], Any], suffix: str) -> Callable[[bytes, Path], Any]:
  def run(content: bytes, folder: Path) -> Any:
    path = folder / f"file{suffix}"
    path.write_bytes(content)
    return load(path)

  return run


def in_memory(load: Callable[[Tensor], Any]) -> Callable[[bytes, Path], Any]:
  return lambda content, folder: load(Tensor(content))


READERS: dict[str, Callable[[bytes, Path], Any]] = {
  "torch": load_bytes(state.torch_load, ".pt"),
  "safetensors": load_bytes(state.safe_load, ".safetensors"),
  "index": load_bytes(state.safe_load, ".json"),
  "gguf": load_bytes(state.gguf_load, ".gguf"),
  "npy": load_bytes(state.npy_load, ".npy"),
  "npz": load_bytes(state.npz_load, ".npz"),
  "zip": in_memory(state.zip_extract),
  "tar": in_memory(state.tar_extract),
  "idx": load_bytes(datasets.idx_load, ".idx"),
}

FAMILIES: dict[str, tuple[str, int, Callable[[int], bytes]]] = {
  **{f"torch, {key}": ("torch", n, in_checkpoint(make)) for key, (n, make) in PICKLES.items()},
  "torch before 1.6, keys that collide": ("torch", 2000, lambda n: legacy(dictionary(collisions(n)))),
  "safetensors, many": ("safetensors", 500, small_tensors),
  "safetensors, a name twice": ("safetensors", 3000, lambda n: safetensors(repeated(n))),
  "safetensors, axes": (
    "safetensors",
    20000,
    lambda n: safetensors(json.dumps({"a": {"dtype": "U8", "shape": [1] * n, "data_offsets": [0, 1]}}).encode(), 1),
  ),
  "safetensors, digits": (
    "safetensors",
    100,
    lambda n: safetensors(
      json.dumps({"a": {"dtype": "U8", "shape": [10**4000] * n, "data_offsets": [0, 1]}}).encode(), 1
    ),
  ),
  "safetensors, nested": ("safetensors", 20000, lambda n: safetensors(b'{"a":' * n + b"0" + b"}" * n)),
  "index, a name twice": ("index", 3000, repeated),
  "gguf, a name twice": ("gguf", 3000, lambda n: gguf([(f"{i}", (1,)) for i in range(n)] + [("x", (1,))] * 2)),
  "gguf, quantised": ("gguf", 20, quantised),
  "gguf, arrays": ("gguf", 3000, arrays_in_arrays),
  "zip, many": ("zip", 500, zipped),
  "zip, ends": ("zip", 4000, lambda n: zipped(1)[:-2] + b"\xff\xff" + b"PK\x05\x06" * n),
  "zip, extra fields": ("zip", 4, lambda n: zipped(n, 65532)),
  "npz, many": ("npz", 300, npz),
  "npy, axes": ("npy", 700, lambda n: npy("(" + "1," * n + ")", 4)),
  "npy, brackets": ("npy", 1000, lambda n: npy("(" * n + ")" * n, 4)),
  "tar, many": ("tar", 500, lambda n: tarred([(b"0", b"f%d" % i, b"content") for i in range(n)])),
  "tar, streams of gzip": ("tar", 2000, lambda n: gzip.compress(tarred([])) + gzip.compress(b"") * n),
  "tar, streams of bzip2": ("tar", 2000, lambda n: bz2.compress(tarred([])) + bz2.compress(b"") * n),
  "tar, streams of xz": ("tar", 2000, lambda n: lzma.compress(tarred([])) + lzma.compress(b"") * n),
  "idx, streams of gzip": (
    "idx",
    2000,
    lambda n: gzip.compress(bytes((0, 0, 8, 1, 0, 0, 0, 0))) + gzip.compress(b"") * n,
  ),
  "tar, long names of long names": ("tar", 2000, lambda n: tarred([(b"L", b"x", b"name")] * n + [(b"0", b"f", b"x")])),
  "tar, fields of all files": (
    "tar",
    300,
    lambda n: tarred([(b"g", b"x", records(20 * n)), *[(b"x", b"x", b"7 a=bc\n"), (b"0", b"f", b"x")] * n]),
  ),
}
"""Families of files: the reader, how many of something, and the file with as many."""


def valid_files() -> dict[str, list[bytes]]:
  """Small whole files for each reader."""
  rebuilt = (
    name("torch._utils", "_rebuild_tensor_v2")
    + b"("
    + b"("
    + text("storage")
    + name("torch", "FloatStorage")
    + text("0")
    + text("cpu")
    + b"K\x04tQK\x00K\x02K\x02\x86K\x02K\x01\x86\x89"
    + name("collections", "OrderedDict")
    + b")RtR"
  )
  state = b"}(" + text("weight") + rebuilt + text("step") + b"K\x03" + text("state") + b"}K\x00](K\x01K\x02esu"
  array = name("numpy._core.multiarray", "_reconstruct") + b"(" + name("numpy", "ndarray") + b"K\x00\x85" + text("b")
  array += b"tR(K\x01K\x02\x85" + name("numpy", "dtype") + text("i4") + b"\x85R(K\x03" + text("<") + b"NNNtb"
  array += b"\x89" + pickle.dumps(bytes(8), 4)[2:-1].replace(b"\x94", b"") + b"tb"
  kinds = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
  entries = struct.pack("<Q", 1) + b"k" + struct.pack("<IIQ", 9, 8, 1) + struct.pack("<Q", 2) + b"ab"
  metadata = {"metadata": {"total_size": 16}, "weight_map": {}}
  fields = [(b"L", b"x", b"name"), (b"0", b"f", b"x"), (b"x", b"x", records(2)), (b"0", b"g", b"y"), (b"5", b"h", b"")]
  return {
    "torch": [checkpoint(state), checkpoint(array), legacy(rebuilt)],
    "safetensors": [small_tensors(3)],
    "index": [json.dumps(metadata).encode()],
    "gguf": [gguf([("a", (2, 2))], entries, 1) + bytes(32), gguf([("b", (0,))])],
    "npy": [npy("(2, 3)", 24), npy("()", 4), npy("(0,)")],
    "npz": [npz(2)],
    "zip": [zipped(2, 8), *[packed(kind) for kind in kinds]],
    "tar": [tarred(fields), *[pack(tarred(fields)) for pack in (gzip.compress, bz2.compress, lzma.compress)]],
    "idx": [
      bytes((0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3)) + bytes(6),
      gzip.compress(bytes((0, 0, 8, 1, 0, 0, 0, 2, 1, 2))),
    ],
  }


def packed(kind: int) -> bytes:
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", kind) as archive:
    archive.writestr("a", b"content" * 9)
  return out.getvalue()
