"""SHA-256 without OpenSSL against hashlib's."""

from __future__ import annotations

import hashlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from tiny_uop.system import sha256


@given(st.lists(st.binary(max_size=200), max_size=4))
def test_digests_are_hashlibs(parts: list[bytes]) -> None:
  ours, theirs = sha256(b"".join(parts[:1])), hashlib.sha256(b"".join(parts[:1]))
  for part in parts[1:]:
    ours.update(part)
    theirs.update(part)
  assert ours.digest() == theirs.digest() and ours.hexdigest() == theirs.hexdigest()


def test_the_key_of_a_graph_loads_no_openssl() -> None:
  code = "import sys; from tiny_uop import UOp; UOp.variable('n', 1, 9).key; print('_hashlib' in sys.modules)"
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
  assert done.stdout.strip() == "False"
