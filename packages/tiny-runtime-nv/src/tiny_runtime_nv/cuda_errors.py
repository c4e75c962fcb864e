"""Errors of the driver API as those of the contract."""

from __future__ import annotations

from collections.abc import Sequence

from tiny_runtime import BackendError, DeviceLost, Unavailable
from tiny_runtime_nv.driver import DriverError

OUT_OF_MEMORY = 2
NOT_THE_CODE = {209, 218, 221, 222, 223, 300}
"""NO_BINARY_FOR_GPU, INVALID_PTX, JIT_COMPILER_NOT_FOUND, UNSUPPORTED_PTX_VERSION, JIT_COMPILATION_DISABLED,
INVALID_SOURCE: of loading a program."""
TOO_NEW = 222
TOO_LARGE = {1, 701}
"""INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES: of a launch whose sizes the device does not take."""
LOST = {
  46: "another process has the GPU, or it fell off the bus",
  201: "its context is gone",
  214: "its memory had an error that could not be corrected",
  220: "a link to another GPU failed",
  226: "its hardware failed",
  700: "a kernel used an address that is in no buffer",
  702: "a kernel took longer than the system lets it, as with a GPU that drives a screen",
  708: "its context is gone",
  709: "its context is gone",
  710: "an assertion in a kernel failed",
  714: "a kernel's stack overflowed, or is damaged",
  715: "a kernel had an instruction that the GPU does not know",
  716: "a kernel used an address that is no multiple of the access's size",
  717: "a kernel used an address in a space of memory that it is not in",
  718: "a kernel jumped to where no code is",
  719: "a kernel crashed",
  721: "a kernel left memory of its tensor cores allocated",
  999: "the driver does not know why",
}
"""Errors after which nothing more can be done with the context, in words."""
ENDS_PROCESS = {226, 700, 702, 714, 715, 716, 717, 718, 719, 721}
"""Those of LOST of which cuda.h says that they leave the process in an inconsistent state, that all further work
returns the same error, and that "the process must be terminated and relaunched"."""
END = "End this process: after such a fault the driver lets it use this GPU no more"
NAMED = 8
"""So many kernels are named as those that may be the cause."""


def lost(error: DriverError, action: str, kernels: Sequence[str]) -> DeviceLost:
  """The device is lost; `kernels` were started since it was known to be well, so one of them, if any, is the cause."""
  text = f"{action}: {error}; {LOST[error.status]}"
  names = list(dict.fromkeys(kernels))
  if len(names) == 1:
    text += f". It was kernel {names[0]}"
  elif names:
    more = f" (and {len(names) - NAMED} more)" if len(names) > NAMED else ""
    text += f". One of these kernels, or what came before: {', '.join(names[-NAMED:])}{more}"
    text += ". CUDA_LAUNCH_BLOCKING=1 in the environment waits for each, and so tells which"
  if error.status in ENDS_PROCESS:
    text += f". {END}"
  return DeviceLost(text)


def not_opened(error: DriverError, name: str) -> BackendError:
  """Why a device that is there cannot be opened."""
  if error.status == OUT_OF_MEMORY:
    return Unavailable(f"{name} has no memory left for another program: {error}", "`nvidia-smi` shows which have it")
  if error.status in ENDS_PROCESS:
    return Unavailable(f"{name} had a fault in this process: {error}; {LOST[error.status]}", END)
  if error.status == 46:
    return Unavailable(f"{name} is in use, or in a mode in which only one program may use it: {error}", "`nvidia-smi`")
  return Unavailable(f"{name} cannot be opened: {error}", "`nvidia-smi` says more")
