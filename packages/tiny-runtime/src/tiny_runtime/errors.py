"""The closed list of errors that a backend may raise, and that this package raises about backends.

All of them are RuntimeErrors and survive pickling, so that a compiler in a worker process can report one.
"""

from __future__ import annotations

from typing import Self


def printable(text: str) -> str:
  """A text by somebody else for messages and terminals: control characters, with which it could rewrite what stands
  there, are shown as Python writes them."""
  if text.isprintable():
    return text
  return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


class BackendError(RuntimeError):
  """Base of the list; never raised itself. `str(error)` is the whole message."""

  def within(self, context: str) -> Self:
    """The same error with `context` (which kernel, which device) in front of its message."""
    return type(self)(*[printable(str(text)) for text in (f"{context}: {self.args[0]}", *self.args[1:])])


class Unavailable(BackendError):
  """Nothing usable on this machine: no such hardware, no driver, no permission. Absence is normal, not a fault.

  `probe()` returns one; it is raised only when the device was asked for by name.
  """

  def __init__(self, reason: str, what_to_do: str = "") -> None:
    super().__init__(reason, what_to_do)

  @property
  def reason(self) -> str:
    """What is missing."""
    return str(self.args[0])

  @property
  def what_to_do(self) -> str:
    """What the user can do about it; may be empty."""
    return str(self.args[1])

  def __str__(self) -> str:
    return f"{self.reason}. {self.what_to_do}" if self.what_to_do else self.reason


class Incompatible(BackendError):
  """The plugin speaks another version of the contract than this tiny-runtime."""


class Broken(BackendError):
  """The plugin itself is at fault: it cannot be imported, is of the wrong type, or raised what the contract does not
  allow."""


class CompileError(BackendError):
  """The compiler refused a kernel. `source` is the text it refused."""

  def __init__(self, message: str, source: str = "") -> None:
    super().__init__(message, source)

  @property
  def source(self) -> str:
    """The program text that did not compile; empty if it never came to text."""
    return str(self.args[1])

  def __str__(self) -> str:
    return str(self.args[0])


class OutOfMemory(BackendError):
  """An allocation did not fit. The device stays usable; free something and try again."""


class DeviceLost(BackendError):
  """The device stopped working (reset, hang, unplugged). Its memory is gone; the next use opens it afresh."""
