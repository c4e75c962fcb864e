"""`fetch` and `Tensor.from_url`, from a server on this machine that does all that servers do."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import Site, serving

from tiny_runtime import private_files
from tiny_tensor import Context, Tensor, fetch
from tiny_tensor.io import download

DATA = bytes(range(256)) * 1024


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
  monkeypatch.setattr("time.sleep", lambda seconds: None)
  for name in [n for n in os.environ if n.lower().endswith("_proxy")]:
    monkeypatch.delenv(name)
  with Context(DEVICE="REF", TINY_CACHE=str(tmp_path / "cache")):
    yield tmp_path / "cache" / "downloads"


@pytest.fixture
def site() -> Iterator[Site]:
  with serving(Site({"/a.bin": DATA, "/a.gz": gzip.compress(DATA), "/empty": b""})) as made:
    yield made


def kept(cache: Path) -> list[str]:
  return sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file()) if cache.exists() else []


def test_a_file_is_fetched_once(site: Site, cache: Path) -> None:
  path = fetch(f"{site.url}/a.bin")
  assert path.read_bytes() == DATA and path.parent == cache and path.name.endswith("-a.bin")
  assert fetch(f"{site.url}/a.bin") == path and len(site.requests) == 1
  site.files["/a.bin"] = b"new"
  assert fetch(f"{site.url}/a.bin", allow_caching=False).read_bytes() == b"new" and len(site.requests) == 2
  assert fetch(f"{site.url}/empty").read_bytes() == b"" and len(kept(cache)) == 2


def test_names_and_folders(site: Site, cache: Path, tmp_path: Path) -> None:
  assert fetch(f"{site.url}/a.bin", "x.bin", subdir="sets") == cache / "sets" / "x.bin"
  assert fetch(f"{site.url}/a.bin", tmp_path / "here" / "y.bin").read_bytes() == DATA
  assert fetch(f"{site.url}/a.bin", str(tmp_path / "z.bin")) == tmp_path / "z.bin"


def test_unpacking(site: Site) -> None:
  packed, plain = fetch(f"{site.url}/a.gz"), fetch(f"{site.url}/a.gz", gunzip=True)
  assert packed != plain and plain.read_bytes() == DATA and gzip.decompress(packed.read_bytes()) == DATA


def test_digests(site: Site, cache: Path) -> None:
  good = hashlib.sha256(DATA).hexdigest()
  path = fetch(f"{site.url}/a.bin", sha256=good.upper())
  with pytest.raises(ValueError, match=f"digest {good}, expected 0123"):
    fetch(f"{site.url}/a.bin", sha256="0123" * 16)
  assert kept(cache) == [path.name], "what is wrong is not kept"
  named = fetch(f"{site.url}/a.bin", "n.bin", sha256=good)
  named.write_bytes(b"damaged since")
  assert fetch(f"{site.url}/a.bin", "n.bin", sha256=good).read_bytes() == DATA


def test_nothing_there(site: Site, cache: Path) -> None:
  with pytest.raises(FileNotFoundError, match="/none': 404"):
    fetch(f"{site.url}/none")
  assert len(site.requests) == 1 and kept(cache) == []
  with pytest.raises(OSError, match="cannot fetch 'http://127.0.0.1:1/x', after 4 attempts: .*refused"):
    fetch("http://127.0.0.1:1/x")


def test_a_connection_that_breaks_is_taken_up(site: Site) -> None:
  site.breaks["/a.bin"] = [1000, 5000]
  assert fetch(f"{site.url}/a.bin").read_bytes() == DATA
  assert [asked for _, asked in site.requests] == ["", "bytes=1000-", "bytes=6000-"]


def test_a_file_that_changes_in_between_is_fetched_anew(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
  site.breaks["/a.bin"] = [1000]
  new = DATA[::-1]

  def change(seconds: float) -> None:
    if len(site.requests) == 1:
      site.files["/a.bin"], site.tag = new, '"2"'

  monkeypatch.setattr("time.sleep", change)
  assert fetch(f"{site.url}/a.bin").read_bytes() == new
  assert [asked for _, asked in site.requests] == ["", "bytes=1000-"]


def test_a_server_without_parts(site: Site) -> None:
  site.ranges, site.breaks["/a.bin"] = False, [1000, 70000]
  assert fetch(f"{site.url}/a.bin").read_bytes() == DATA and [r for _, r in site.requests] == ["", "", ""]


def test_a_file_that_is_always_cut_short(site: Site, cache: Path) -> None:
  site.ranges, site.breaks["/a.bin"] = False, [1000] * 9
  with pytest.raises(OSError, match="after 4 attempts: the connection ended after 1000 of 262144 bytes"):
    fetch(f"{site.url}/a.bin")
  assert kept(cache) == [] and list(cache.iterdir()) == []


def test_servers_in_trouble(site: Site) -> None:
  site.failures["/a.bin"] = [503, 500]
  assert fetch(f"{site.url}/a.bin").read_bytes() == DATA
  site.failures["/a.gz"] = [403]
  with pytest.raises(OSError, match="403"):
    fetch(f"{site.url}/a.gz")


def test_redirections(site: Site, tmp_path: Path) -> None:
  site.redirects = {"/r": f"{site.url}/a.bin", "/loop": f"{site.url}/loop", "/file": f"file://{tmp_path}/secret"}
  (tmp_path / "secret").write_text("secret")
  assert fetch(f"{site.url}/r").read_bytes() == DATA
  for path in ("/loop", "/file"):
    with pytest.raises(OSError, match="30"):
      fetch(site.url + path)


def test_headers_go_to_the_server_and_no_further(site: Site) -> None:
  site.redirects = {"/r": f"{site.url}/a.bin"}
  given = {"Authorization": "Bearer secret", "User-Agent": "mine", "Range": "bytes=5-", "X-Other": "1"}
  assert fetch(f"{site.url}/r", headers=given).read_bytes() == DATA
  first, second = site.headers
  assert (first["Authorization"], first["User-Agent"], first["X-Other"]) == ("Bearer secret", "mine", "1")
  assert "Range" not in first and not {"Authorization", "X-Other"} & second.keys() and second["User-Agent"] != "mine"


def test_what_is_too_large(site: Site, cache: Path) -> None:
  with pytest.raises(ValueError, match="262144 bytes, more than 1000"):
    fetch(f"{site.url}/a.bin", limit=1000)
  site.lengths = False
  with pytest.raises(ValueError, match="more than 1000 bytes"):
    fetch(f"{site.url}/a.bin", limit=1000)
  site.files["/bomb"] = gzip.compress(bytes(1 << 24))  # 16 kB
  with pytest.raises(ValueError, match="unpacks to more than 1000000 bytes"):
    fetch(f"{site.url}/bomb", gunzip=True, limit=1_000_000)
  assert kept(cache) == []


def test_local_files(tmp_path: Path) -> None:
  path = tmp_path / "a b.gz"
  path.write_bytes(gzip.compress(DATA))
  assert fetch(path.as_uri()) == path and fetch(str(path)) == path
  assert fetch(path.as_uri(), gunzip=True).read_bytes() == DATA
  path.write_bytes(gzip.compress(b"new"))
  assert fetch(str(path), gunzip=True).read_bytes() == b"new", "a local file may change at any time"
  with pytest.raises(FileNotFoundError, match="none.bin"):
    fetch(str(tmp_path / "none.bin"))
  with pytest.raises(ValueError, match="'ftp'"):
    fetch("ftp://host/file")
  with pytest.raises(ValueError, match="digest"):
    fetch(str(path), sha256="0" * 64)


def gunzip(raw: bytes) -> bytes:
  return b"".join(download.gunzipped(io.BytesIO(raw), 1 << 30, "it"))


def test_gzip_files_of_all_kinds() -> None:
  large = bytes(5 << 20) + DATA
  assert gunzip(gzip.compress(large)) == large and gunzip(gzip.compress(b"")) == b""
  assert gunzip(gzip.compress(b"one") + gzip.compress(b"two") + bytes(100)) == b"onetwo"
  whole = gzip.compress(DATA)
  for broken, message in (
    (whole[:-3], "ends at byte .* in the middle"),
    (b"", "in the middle"),
    (b"no gzip at all", "no valid gzip file.*header"),
    (whole[:200] + b"\xff" * 50 + whole[250:], "no valid gzip file"),
    (whole[:-8] + b"\0" * 8, "no valid gzip file"),
    (whole + b"rest", "no valid gzip file"),
  ):
    with pytest.raises(ValueError, match=message):
      gunzip(broken)


def test_tensors_from_urls(site: Site) -> None:
  t = Tensor.from_url(f"{site.url}/a.gz", gunzip=True)
  assert str(t.device).startswith("DISK") and t.shape == (len(DATA),) and t[256:260].tolist() == [0, 1, 2, 3]
  assert Tensor.from_url(f"{site.url}/a.bin", dtype="int32").shape == (len(DATA) // 4,)


def test_the_bar(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
  fetch(f"{site.url}/a.bin")
  assert capsys.readouterr().err == "", "standard error is no terminal here"
  fetch(f"{site.url}/a.bin", "other", progress=True)
  assert "fetching a.bin: 100% |████████████████████| 0.3 of 0.3 MB" in capsys.readouterr().err
  bar = download.Progress("x", 1_000_000, shown=False)
  bar.advance(500_000)
  assert bar.line(bar._begin + 1).startswith("x:  50% |██████████          | 0.5 of 1.0 MB, 0.5 MB/s")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="owners and modes are of POSIX")
def test_a_file_that_others_could_have_written_is_fetched_again(site: Site, cache: Path) -> None:
  before = os.umask(0)
  try:
    path = fetch(f"{site.url}/a.bin", subdir="some/set")
  finally:
    os.umask(before)
  assert {stat.S_IMODE(p.stat().st_mode) for p in (path, *(p for p in path.parents if cache in p.parents))} == {
    0o600, 0o700,
  }  # fmt: skip
  path.write_bytes(b"something else")
  assert fetch(f"{site.url}/a.bin", subdir="some/set").read_bytes() == b"something else", "it is the user's"
  path.chmod(0o666)
  assert fetch(f"{site.url}/a.bin", subdir="some/set").read_bytes() == DATA and len(site.requests) == 2
  path.parent.chmod(0o777)
  with pytest.warns(RuntimeWarning, match="others may write to it"):
    private_files._looked_at.clear()
    other = fetch(f"{site.url}/a.bin", subdir="some/set")
  assert cache not in other.parents and other.read_bytes() == DATA and len(site.requests) == 3
