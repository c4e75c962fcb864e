"""Packs what a machine without a network may lack into .device/: llvmlite, for its Python. Needs pip and an index."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[2]
PACKED = ROOT / ".device" / "site.tar.xz"
"""As a wheel it would be too large to carry."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--python", default="3.12", help="of the machine with the GPU; default: 3.12")
  parser.add_argument("packages", nargs="*", default=["llvmlite>=0.50"], help="what to pack; default: llvmlite")
  given = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", folder]
    command += ["--python-version", given.python, "--implementation", "cp"]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, *given.packages], check=True)
    site = Path(folder, "site")
    for wheel in Path(folder).glob("*.whl"):
      with ZipFile(wheel) as archive:
        archive.extractall(site)
    PACKED.parent.mkdir(exist_ok=True)
    whole = PACKED.with_suffix(".new")
    with tarfile.open(whole, "w:xz", preset=6) as packed:
      packed.add(site, ".")
    whole.replace(PACKED)
  print(f"{PACKED.relative_to(ROOT)}: {PACKED.stat().st_size / 1e6:.0f} MB")
  return 0


if __name__ == "__main__":
  sys.exit(main())
