"""What Metal says of command buffers that failed, as errors of the contract."""

from __future__ import annotations

from tiny_runtime import DeviceLost, OutOfMemory
from tiny_runtime_metal.messages import Handle, Messages, text_of

FAILED = 5
"""MTLCommandBufferStatusError."""
OUT_OF_MEMORY = 8
"""MTLCommandBufferErrorOutOfMemory."""
CAUSES = {
  1: "an error inside of the driver",
  2: "it ran for too long, and the system ended it",
  3: "it touched memory outside of its buffers",
  4: "the GPU is denied to this process after earlier failures",
  7: "this process may not use the GPU",
  9: "a buffer that it used was gone",
  11: "the GPU was removed",
  12: "it used more stack than there is",
}
"""MTLCommandBufferError: Internal, Timeout, PageFault, AccessRevoked, NotPermitted, InvalidResource, DeviceRemoved,
StackOverflow."""


def check_finished(messages: Messages, command: Handle, what: str) -> None:
  """Raises OutOfMemory or DeviceLost, naming `what` and the cause, for a command buffer that did not end well."""
  if messages.send(command, "status") != FAILED:
    return
  error = messages.send(command, "error")
  code = messages.send(error, "code") if error else 0
  said = text_of(messages, messages.send(error, "localizedDescription")) if error else "Metal gives no reason"
  if code == OUT_OF_MEMORY:
    raise OutOfMemory(f"{what}: the GPU has not enough memory for its buffers. Metal says: {said}")
  raise DeviceLost(f"{what}: {CAUSES.get(code, f'error {code}')}. Metal says: {said}")
