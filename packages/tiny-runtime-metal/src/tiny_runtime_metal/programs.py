"""Programs: source → what the driver makes of it, and what a launch of it takes."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence

from tiny_codegen import function_name
from tiny_runtime import Binary, CompileError
from tiny_runtime_metal.arch import Arch
from tiny_runtime_metal.messages import Handle, Messages, text_of

SAFE = 0  # MTLMathModeSafe


class Program:
  """A loaded kernel. The driver's part of it is released when nobody holds this any more."""

  def __init__(self, messages: Messages, pipeline: Handle, binary: Binary) -> None:
    self.pipeline = pipeline
    self.name = binary.entry
    self.needs = [p.size * p.dtype.itemsize for p in binary.params]
    self.variables = binary.variables
    self.threads: int = messages.send(pipeline, "maxTotalThreadsPerThreadgroup")
    weakref.finalize(self, messages.send, pipeline, "release")

  def check(self, sizes: Sequence[int], integers: Sequence[int], local_size: tuple[int, ...]) -> None:
    """Raises ValueError for arguments that do not fit. `sizes`: bytes of each buffer from where it begins; -1 for
    memory that was freed."""
    if len(sizes) != len(self.needs) or len(integers) != len(self.variables):
      raise ValueError(
        f"kernel {self.name} takes {len(self.needs)} buffers and the integers {self.variables}, "
        f"got {len(sizes)} buffers and {len(integers)} integers"
      )
    for place, (size, need) in enumerate(zip(sizes, self.needs)):
      if size < need:
        got = f"{size} bytes" if size >= 0 else "memory that was freed"
        raise ValueError(f"buffer {place} of kernel {self.name} has {need} bytes, got {got}")
    if math.prod(local_size) > self.threads:
      raise ValueError(
        f"kernel {self.name} is launched with {' × '.join(map(str, local_size))} threads in a threadgroup; "
        f"with the registers that it needs, this GPU has room for {self.threads}"
      )


def load_program(messages: Messages, device: Handle, arch: Arch, binary: Binary) -> Program:
  """The kernel of a binary, compiled by the driver. Raises CompileError with the source and what the compiler says."""
  source = binary.code.decode()
  send, strings = messages.send, messages.class_named("NSString")
  with messages.pool():
    options = _options(messages, arch)
    text = send(strings, "stringWithUTF8String:", source)
    library, error = send(device, "newLibraryWithSource:options:error:", text, options)
    send(options, "release")
    if not library:
      raise CompileError(f"Metal's compiler refused kernel {binary.entry}:\n{_said(messages, error)}", source)
    function = send(
      library, "newFunctionWithName:", send(strings, "stringWithUTF8String:", function_name(binary.entry))
    )
    send(library, "release")
    if not function:
      raise CompileError(f"there is no function {function_name(binary.entry)} in the source of {binary.entry}", source)
    pipeline, error = send(device, "newComputePipelineStateWithFunction:error:", function)
    send(function, "release")
    if not pipeline:
      raise CompileError(f"the driver has no code for kernel {binary.entry}:\n{_said(messages, error)}", source)
  return Program(messages, pipeline, binary)


def _options(messages: Messages, arch: Arch) -> Handle:
  """The language that the source is in, and arithmetic as the source says."""
  send = messages.send
  options: Handle = send(send(messages.class_named("MTLCompileOptions"), "alloc"), "init")
  major, minor = arch.language
  send(options, "setLanguageVersion:", (major << 16) + minor)
  if send(options, "respondsToSelector:", "setMathMode:"):  # macOS 15
    send(options, "setMathMode:", SAFE)
  else:
    send(options, "setFastMathEnabled:", False)
  return options


def _said(messages: Messages, error: Handle) -> str:
  return text_of(messages, messages.send(error, "localizedDescription")) if error else "it does not say why"
