"""`fetch`: files from the network, kept in a folder, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
  from http.client import HTTPResponse

PIECE = 1 << 16  # bytes read at a time
UNPACKED = 1 << 20  # bytes unpacked at a time, at most
ATTEMPTS = 4  # of a download whose connection breaks or whose server is in trouble
LIMIT = 1 << 36  # bytes of a file: 64 GiB
USER_AGENT = "tiny-tensor"


class Progress:
  """A line about how far something is, on standard error: while that is a terminal, or if `shown` is True.

  `total` and what `advance` is given are bytes; a total that is not known is 0.
  """

  def __init__(self, what: str, total: int = 0, shown: bool | None = None) -> None:
    self.what, self.total, self.done = what, total, 0
    self._shown = sys.stderr.isatty() if shown is None else shown
    self._begin = self._last = time.monotonic()

  def advance(self, count: int) -> None:
    """Notes `count` bytes more, and prints now and then."""
    self.done += count
    if self._shown and (now := time.monotonic()) - self._last > 0.1:
      self._last = now
      sys.stderr.write("\r" + self.line(now))
      sys.stderr.flush()

  def line(self, now: float) -> str:
    """The text of the line."""
    rate = self.done / max(now - self._begin, 1e-6) / 1e6
    if not self.total:
      return f"{self.what}: {self.done / 1e6:.1f} MB, {rate:.1f} MB/s "
    share = min(self.done / self.total, 1.0)
    bar = "█" * int(20 * share)
    return f"{self.what}: {share:4.0%} |{bar:20}| {self.done / 1e6:.1f} of {self.total / 1e6:.1f} MB, {rate:.1f} MB/s "

  def close(self) -> None:
    """Ends the line."""
    if self._shown:
      sys.stderr.write("\r" + self.line(time.monotonic()) + "\n")


def downloads(*below: str) -> Path:
  """The folder that `fetch` keeps files in, or one in it: `downloads` in that of the caches (TINY_CACHE)."""
  from tiny_runtime.private_files import folder_in_use

  return folder_in_use("downloads", *below)


def fetch(
  url: str,
  name: str | Path | None = None,
  subdir: str | None = None,
  gunzip: bool = False,
  allow_caching: bool = True,
  headers: Mapping[str, str] | None = None,
  sha256: str | None = None,
  *,
  progress: bool | None = None,
  timeout: float = 30.0,
  limit: int = LIMIT,
) -> Path:
  """The file at `url` (http, https, file, or the path of a local file, which is given back as it is) on this machine.

  It is kept as `name` in `subdir` of the cache, or, if `name` is a Path or has a "/" in it, there; and is not fetched
  again while it is there, unless `allow_caching` is False. `gunzip` unpacks it. `headers` are sent along, but not to
  where the server redirects. `sha256` is the digest, in hexadecimal, of the bytes at the URL. `progress` shows a bar on
  standard error; None: if that is a terminal. `timeout` is in seconds, for each wait; `limit` in bytes, of what comes
  and of what is unpacked.

  A broken connection is taken up where it broke. The file appears whole or not at all. Raises FileNotFoundError where
  there is nothing (404), OSError with the URL for other failures, ValueError for another digest, for more than `limit`
  bytes and for what is no gzip.
  """
  local = _local(url)
  if local is not None and not gunzip:
    _check_digest(local, url, sha256)
    return local
  from tiny_runtime.private_files import is_private, make_folder

  path, ours = _place(url, name, subdir, gunzip, sha256)
  if allow_caching and local is None and (is_private(path) if ours else path.is_file()):
    if gunzip or sha256 is None or _digest(path) == sha256.lower():
      return path
  make_folder(path.parent) if ours else path.parent.mkdir(parents=True, exist_ok=True)
  with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
    found = local or Path(folder) / "came"
    if local is None:
      with found.open("wb") as file:
        _download(url, file, progress, timeout, limit, headers or {})
    _check_digest(found, url, sha256)
    if gunzip:
      packed, found = found, Path(folder) / "unpacked"
      with packed.open("rb") as source, found.open("wb") as target:
        target.writelines(gunzipped(source, limit, repr(url)))
    if ours:  # whatever the umask is
      found.chmod(0o600)
    os.replace(found, path)
  return path


def _local(url: str) -> Path | None:
  """The file that a URL or a path names on this machine; None for one that is elsewhere."""
  parts = urlsplit(url)
  if parts.scheme in ("http", "https"):
    return None
  if "://" in url and (parts.scheme != "file" or parts.netloc not in ("", "localhost")):
    raise ValueError(f"cannot fetch {url!r}: expected http://, https:// or file:///, got {parts.scheme!r}")
  path = Path(unquote(parts.path) if parts.scheme == "file" else url)
  if not path.is_file():
    raise FileNotFoundError(f"cannot fetch {url!r}: there is no file {str(path)!r}")
  return path


def _place(
  url: str, name: str | Path | None, subdir: str | None, gunzip: bool, sha256: str | None
) -> tuple[Path, bool]:
  """The path that a file is kept at, and whether that is in the cache. Another digest is another file: a cached one was
  checked when it came."""
  if isinstance(name, Path) or (name is not None and "/" in name):
    return Path(name), False
  key = f"{url} {gunzip} {(sha256 or '').lower()}"
  default = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}-{Path(unquote(urlsplit(url).path)).name[-64:]}"
  return downloads(*Path(subdir or "").parts) / (name or default), True


def _digest(path: Path) -> str:
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


def _check_digest(path: Path, url: str, sha256: str | None) -> None:
  if sha256 is not None and (found := _digest(path)) != sha256.lower():
    raise ValueError(
      f"{url!r} has the SHA-256 digest {found}, expected {sha256.lower()}: it is damaged or another file"
    )


def gunzipped(source: IO[bytes], limit: int, what: str) -> Iterator[bytes]:
  """The contents of a gzip file in pieces. ValueError, with `what` and the offset, for a damaged or too large one."""
  import gzip

  size, file = 0, gzip.GzipFile(fileobj=source)
  try:
    while piece := file.read(UNPACKED):  # a few bytes can stand for a thousand times as many
      size += len(piece)
      if size > limit:
        raise ValueError(f"{what} unpacks to more than {limit} bytes: raise `limit` if that is meant to be")
      yield piece
    if not source.tell():
      raise EOFError("there are no bytes")
  except EOFError as error:
    raise ValueError(f"{what} is no whole gzip file: it ends at byte {source.tell()}, in the middle: {error}") from None
  except (gzip.BadGzipFile, zlib.error) as error:
    raise ValueError(f"{what} is no valid gzip file: in a header, or before byte {source.tell()}: {error}") from None


def _download(
  url: str, file: IO[bytes], progress: bool | None, timeout: float, limit: int, given: Mapping[str, str]
) -> None:
  """Writes what is at `url` to `file`; goes on where a connection broke."""
  import http.client
  import urllib.error

  done, mark, bar, trouble = 0, "", None, ""
  for attempt in range(ATTEMPTS):
    time.sleep(0.2 * attempt)
    try:
      with _open(url, done, mark, timeout, given) as response:
        if done and not response.headers.get("Content-Range", "").startswith(f"bytes {done}-"):  # it begins anew
          file.seek(0)
          file.truncate()
          done = 0
        mark = _mark(response)
        total = done + int(response.headers.get("Content-Length") or 0)
        bar = bar or Progress(f"fetching {Path(urlsplit(url).path).name or url}", total, progress)
        bar.done = done
        if total > limit:
          raise ValueError(f"{url!r} has {total} bytes, more than {limit}: raise `limit` if that is meant to be")
        while piece := response.read1(PIECE):
          file.write(piece)
          done += len(piece)
          if done > limit:
            raise ValueError(f"{url!r} sends more than {limit} bytes: raise `limit` if that is meant to be")
          bar.advance(len(piece))
        if done >= total:
          bar.close()
          return
        trouble = f"the connection ended after {done} of {total} bytes"
    except urllib.error.HTTPError as error:
      error.close()
      if error.code in (404, 410):
        raise FileNotFoundError(f"cannot fetch {url!r}: {error.code} {error.reason}") from None
      if error.code < 500 and error.code != 416:
        raise OSError(f"cannot fetch {url!r}: {error.code} {error.reason}") from None
      trouble, mark = f"{error.code} {error.reason}", ""
    except (OSError, http.client.HTTPException) as error:
      trouble = f"{type(error).__name__}: {error}"
    done = file.tell() if mark else 0
    file.seek(done)
    file.truncate()
  raise OSError(f"cannot fetch {url!r}, after {ATTEMPTS} attempts: {trouble}")


def _mark(response: HTTPResponse) -> str:
  """The tag or date by which a server tells that a file is still the same one; empty if it sends no parts."""
  if response.status != 206 and response.headers.get("Accept-Ranges") != "bytes":
    return ""
  tag = response.headers.get("ETag", "")
  return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _open(
  url: str, done: int, mark: str, timeout: float, given: Mapping[str, str]
) -> contextlib.AbstractContextManager[HTTPResponse]:
  import urllib.request as request

  opener = request.OpenerDirector()  # no handlers of files and FTP: a server could redirect to them
  for handler in (
    request.ProxyHandler, request.UnknownHandler, request.HTTPHandler, request.HTTPSHandler,
    request.HTTPDefaultErrorHandler, request.HTTPRedirectHandler, request.HTTPErrorProcessor,
  ):  # fmt: skip
    opener.add_handler(handler())
  headers = {"User-Agent": USER_AGENT, "Accept-Encoding": "identity"}
  if done and mark:
    headers |= {"Range": f"bytes={done}-", "If-Range": mark}
  asked = request.Request(url, headers=headers)
  for name, value in given.items():
    if name.lower() not in ("accept-encoding", "range", "if-range"):
      asked.add_unredirected_header(name, value)  # a token for one server is no other's
  response: Any = opener.open(asked, timeout=timeout)
  return contextlib.closing(response)
