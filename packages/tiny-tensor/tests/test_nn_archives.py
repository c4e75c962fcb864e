"""Archives in tensors, and tensors as files."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tiny_tensor import Context, Tensor
from tiny_tensor.nn import archives
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
