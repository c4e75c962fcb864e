"""SHA-256 without OpenSSL, which `hashlib` loads: 4 MB of memory and 5 ms of each start, for a hash of a few kilobytes.

The standard library does the same where it only hashes (`random`). Python has its own SHA-256 as `_sha2` from 3.12 on,
before that as `_sha256`; where a distribution leaves them out, it is hashlib's. The digests are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["sha256"]

if TYPE_CHECKING:
  from hashlib import _Hash


def _find() -> Callable[..., _Hash]:
  for name in ("_sha2", "_sha256", "hashlib"):
    try:
      found: Callable[..., _Hash] = import_module(name).sha256
      return found
    except (ImportError, AttributeError):
      continue
  raise ImportError("this Python has no SHA-256")


sha256 = _find()
"""`hashlib.sha256`: an object with `update`, `digest` and `hexdigest`, of the bytes that are given."""
