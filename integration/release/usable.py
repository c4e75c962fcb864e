"""Whether this machine has what a plugin needs: `python usable.py OPENCL` says why not, with exit status 1.

For scripts that test a plugin where it can be used: on a machine that its driver does not know there is nothing to
test.
A plugin that is broken is one to be tested.
"""

from __future__ import annotations

import sys

from tiny_runtime import BackendError, Device, Unavailable


def main(name: str) -> int:
  """The exit status."""
  try:
    Device[name]
  except Unavailable as error:
    print(f"{name} is not tested: {error}")
    return 1
  except BackendError as error:
    print(error)
  return 0


if __name__ == "__main__":
  sys.exit(main(sys.argv[1]))
