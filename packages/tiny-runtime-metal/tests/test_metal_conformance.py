"""Level 0 of the conformance kit, which needs no GPU; and what a machine without Metal is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_runtime import Unavailable
from tiny_runtime_metal import MetalBackend
from tiny_runtime_metal.backend import this_mac


@pytest.mark.parametrize("arch", ["apple7 metal3.0"])
def test_level_0(arch: str, tmp_path: Path) -> None:
  command = [sys.executable, "-m", "pytest", "-q", "-p", "tiny_runtime.conformance.options", "-p", "no:cacheprovider"]
  command += ["--pyargs", "tiny_runtime.conformance", "--backend", "tiny_runtime_metal.backend:BACKEND"]
  command += ["--level", "0", "--arch", arch]
  env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
  done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
  assert done.returncode == 0, done.stdout[-5000:] + done.stderr
  passed = re.search(r"(\d+) passed", done.stdout)
  assert passed is not None and int(passed[1]) >= 15, done.stdout[-5000:]


@pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")
def test_elsewhere_it_says_why_and_what_to_do() -> None:
  found = MetalBackend().probe()
  assert isinstance(found, Unavailable)
  assert found.reason == f"Metal is a part of macOS, and this system is {sys.platform}"
  assert "DEVICE=CPU" in found.what_to_do and "compiler('apple9')" in found.what_to_do
  with pytest.raises(Unavailable, match="Metal is a part of macOS"):
    MetalBackend().open(0)


@pytest.mark.skipif(sys.platform == "darwin", reason="this is a Mac")
def test_a_system_that_calls_itself_macos_but_has_no_metal(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(sys, "platform", "darwin")
  found = this_mac()
  assert isinstance(found, Unavailable) and "Metal.framework cannot be loaded" in found.reason


def test_looking_for_devices_brings_no_code_generator() -> None:
  code = "import sys, tiny_runtime_metal as m; m.BACKEND.probe(); print('tiny_codegen' in sys.modules, m.MetalRenderer)"
  done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
  assert done.stdout.startswith("False <class"), done.stdout + done.stderr
