"""Archives in tensors, and tensors as files."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.io import archives
from tiny_tensor.nn.state import TensorIO, tar_extract, zip_extract

BYTES = bytes(range(1, 8))
FILES = {"a.txt": b"first", "folder/b": bytes(range(256)), "empty": b""}


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def contents(files: dict[str, Tensor]) -> dict[str, bytes]:
  return {name: bytes(t.tolist()) for name, t in files.items()}


def zipped(compression: int = zipfile.ZIP_STORED) -> bytes:
  out = io.BytesIO()
  with zipfile.ZipFile(out, "w", compression) as archive:
    for name, content in FILES.items():
      archive.writestr(name, content)
  return out.getvalue()


def tarred(mode: str) -> bytes:
  out = io.BytesIO()
  with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
    for name, content in FILES.items():
      member = tarfile.TarInfo(name)
      member.size = len(content)
      archive.addfile(member, io.BytesIO(content))
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive.addfile(link)
  return out.getvalue()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_zip(compression: int) -> None:
  assert contents(zip_extract(Tensor(zipped(compression)))) == FILES


@pytest.mark.parametrize("given", [str, Path, Tensor])
@pytest.mark.parametrize(("reader", "data"), [(zip_extract, zipped()), (tar_extract, tarred("w"))])
def test_a_file_is_given_by_its_path_or_as_a_tensor(
  given: Callable[[Path], str | Path | Tensor],
  reader: Callable[[str | Path | Tensor], dict[str, Tensor]],
  data: bytes,
  tmp_path: Path,
) -> None:
  (tmp_path / "archive").write_bytes(data)
  assert contents(reader(given(tmp_path / "archive"))) == FILES


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_tar_leaves_links_out(mode: str) -> None:
  assert contents(tar_extract(Tensor(tarred(mode)))) == FILES


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_all_sorts(kind: int) -> None:
  """Long names, letters of others, folders, links and pipes: as `tarfile` reads them."""
  out = io.BytesIO()
  letters = "Größe 日本" if kind != tarfile.USTAR_FORMAT else "plain"
  long = "folder/" * 20 + "name" if kind == tarfile.USTAR_FORMAT else "f/" * 200 + "n" * 300
  with tarfile.open(fileobj=out, mode="w", format=kind) as archive:
    for n, name in enumerate((letters, long, "x" * 100, "last")):
      member = tarfile.TarInfo(name)
      member.size, member.mtime, member.uid = 512 * n + n, 1.5, 1 << 40 if kind == tarfile.GNU_FORMAT else 0
      archive.addfile(member, io.BytesIO(bytes([n]) * member.size))
    for n, other in enumerate((tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)):
      member = tarfile.TarInfo(f"other{n}")
      member.type, member.linkname, member.size = other, long[:90], 7
      archive.addfile(member)
  with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as archive:
    expected = {m.name: (archive.extractfile(m) or io.BytesIO()).read() for m in archive if m.isreg()}
  assert len(expected) == 4 and contents(tar_extract(Tensor(out.getvalue()))) == expected


def test_fields_of_pax_that_count() -> None:
  def member(kind: bytes, content: bytes, name: str = "f", size: int | None = None) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(content) if size is None else size
    return info.tobuf() + content + bytes(-len(content) % 512)

  fields = member(b"x", b"17 path=new name\n9 size=5\n")
  assert contents(tar_extract(Tensor(fields + member(b"0", b"12345", size=0) + bytes(1024)))) == {"new name": b"12345"}
  for wrong in (b"3", b"x path=a\n", b"99 path=a\n", b"9 size=-\n", b"6 path\n", b"0 path=a\n"):
    with pytest.raises(ValueError, match=r"not a valid tar archive of \d+ bytes: .* at byte (512|1024)\b"):
      tar_extract(Tensor(member(b"x", wrong) + member(b"0", b"1") + bytes(1024)))
  for sparse in (member(b"S", b"1"), member(b"x", b"24 GNU.sparse.name=abc\n") + member(b"0", b"1")):
    with pytest.raises(ValueError, match="sparse"):
      tar_extract(Tensor(sparse + bytes(1024)))


def test_files_of_a_mapped_archive_are_mapped(tmp_path: Path) -> None:
  for extract, content in ((zip_extract, zipped()), (tar_extract, tarred("w"))):
    (tmp_path / "x").write_bytes(content)
    found = extract(Tensor(tmp_path / "x"))
    assert str(found["folder/b"].device).startswith("DISK:")
    assert contents(found) == FILES


def changed(content: bytes, old: bytes, new: bytes, count: int = -1) -> bytes:
  assert old in content and len(old) == len(new)
  return content.replace(old, new, count)


ZIP_DAMAGES: dict[str, tuple[Callable[[], bytes], str]] = {
  "empty": (lambda: b"", "not a valid zip"),
  "another format": (lambda: b"no archive", "not a valid zip"),
  "truncated": (lambda: zipped()[:-30], "not a valid zip"),
  "no header": (lambda: changed(zipped(), b"PK\x03\x04", b"PK\x03\x05", 1), "'a.txt' at byte 0 .*header of a file"),
  "damaged": (lambda: changed(zipped(zipfile.ZIP_DEFLATED), BYTES, BYTES[::-1]), "unpacked"),
  "twice": (lambda: zipped().replace(b"empty", b"a.txt"), "'a.txt' twice"),
}


@pytest.mark.parametrize("what", ["large", "many", "comment", "prefix", "stream", "other letters"])
def test_zips_of_all_sorts(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
  if what == "large":  # every number is one that 32 bits do not hold
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", -1)
  if what == "many":
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 0)
  out = io.BytesIO()
  files = {"größer": b"1", "日本": b"2"} if what == "other letters" else FILES
  target: Any = Unseekable(out) if what == "stream" else out
  with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
    for name, content in files.items():
      archive.writestr(name, content)
    if what == "comment":
      archive.comment = b"PK\x05\x06 is how an end begins" * 9
  content = (b"#! a program" if what == "prefix" else b"") + out.getvalue()
  assert contents(zip_extract(Tensor(content))) == files


class Unseekable:
  """A pipe: sizes come behind the files."""

  def __init__(self, file: io.BytesIO) -> None:
    self.write, self.flush = file.write, file.flush


@pytest.mark.parametrize("damage", ZIP_DAMAGES)
def test_a_damaged_zip(damage: str) -> None:
  make, message = ZIP_DAMAGES[damage]
  with pytest.raises(ValueError, match=message):
    zip_extract(Tensor(make()))


def test_files_of_a_zip_that_overlap_or_lie_outside() -> None:
  content = bytearray(zipped())
  directory = [i for i in range(len(content)) if content[i : i + 4] == b"PK\x01\x02"]
  outside, overlap, longer = bytearray(content), bytearray(content), bytearray(content)
  outside[directory[1] + 42 : directory[1] + 46] = (1 << 24).to_bytes(4, "little")
  overlap[directory[1] + 42 : directory[1] + 46] = bytes(4)
  longer[directory[2] + 20 : directory[2] + 28] = (4000).to_bytes(4, "little") * 2
  for wrong, message in ((outside, "outside"), (overlap, "overlap"), (longer, "truncated")):
    with pytest.raises(ValueError, match=rf"at byte \d+ of the zip archive.*{message}"):
      zip_extract(Tensor(bytes(wrong)))


# made in the test: an archive has its time in it, and tests are named after what they get
DAMAGES: dict[str, Callable[[], bytes]] = {
  "truncated": lambda: tarred("w")[:600],
  "truncated and compressed": lambda: tarred("w:gz")[:100],
  "damaged and compressed": lambda: tarred("w:gz")[:60] + b"damage" + tarred("w:gz")[66:],
  "another format": lambda: b"no archive" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_tar(damage: str) -> None:
  with pytest.raises(ValueError, match="byte|tar archive"):
    tar_extract(Tensor(DAMAGES[damage]()))


def bomb(kind: str, size: int) -> bytes:
  """An archive of a few kilobytes with a file of `size` zeros."""
  out = io.BytesIO()
  if kind.startswith("zip"):
    method = zipfile.ZIP_LZMA if kind == "zip lzma" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(out, "w", method) as archive:
      archive.writestr("zeros", bytes(size))
    return out.getvalue()
  with tarfile.open(fileobj=out, mode=f"w:{kind}") as packed:  # type: ignore[call-overload]
    member = tarfile.TarInfo("zeros")
    member.size = size
    packed.addfile(member, io.BytesIO(bytes(size)))
  return out.getvalue()


@pytest.mark.parametrize("kind", ["zip", "zip lzma", "gz", "bz2", "xz"])
def test_an_archive_that_unpacks_to_too_much(kind: str) -> None:
  extract = zip_extract if kind.startswith("zip") else tar_extract
  packed = Tensor(bomb(kind, 1 << 22))
  assert packed.nbytes() < 1 << 13
  assert extract(packed, limit=(1 << 22) + (1 << 20))["zeros"].shape == (1 << 22,)
  with pytest.raises(ValueError, match="more than 2000000"):
    extract(packed, limit=2_000_000)


def test_the_limit_that_nobody_gives(monkeypatch: pytest.MonkeyPatch) -> None:
  assert archives.most_unpacked(1000) == 1 << 30 and archives.most_unpacked(1 << 30) == 100 << 30
  monkeypatch.setattr(archives, "most_unpacked", lambda packed: 100 * packed)
  for kind, extract in (("zip", zip_extract), ("gz", tar_extract)):
    with pytest.raises(ValueError, match="more than"):
      extract(Tensor(bomb(kind, 1 << 20)))
  many = io.BytesIO()
  with zipfile.ZipFile(many, "w", zipfile.ZIP_DEFLATED) as archive:
    for n in range(8):
      archive.writestr(f"part{n}", bytes(1 << 17))  # none is too much alone
  with pytest.raises(ValueError, match=r"'part\d' at byte .* more than"):
    zip_extract(Tensor(many.getvalue()))


def test_a_tensor_as_a_file() -> None:
  file = TensorIO(Tensor(b"one\ntwo\n" + bytes(5000) + b"\nend"))
  assert [file.readline(), file.readline(), len(file.readline()), file.readline(), file.readline()] == [
    b"one\n", b"two\n", 5001, b"end", b"",
  ]  # fmt: skip
  assert (file.seek(-3, os.SEEK_END), file.read(), file.read(1)) == (5009, b"end", b"")
  file.seek(2)
  assert (file.read(2), file.tell(), file.readline(2), file.tell()) == (b"e\n", 4, b"tw", 6)
  buffer = bytearray(2)
  assert (file.readinto(buffer), bytes(buffer)) == (2, b"o\n")
  with pytest.raises(ValueError, match="before the beginning"):
    file.seek(-1)
  with pytest.raises(io.UnsupportedOperation):
    file.write(b"x")
  with pytest.raises(ValueError, match="float32"):
    TensorIO(Tensor([1.0]))
