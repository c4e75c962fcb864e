"""Programs: source → what the driver makes of it, and what a launch of it takes."""

from __future__ import annotations

import math
import struct
import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from tiny_codegen import function_name
from tiny_runtime import Binary, CompileError
from tiny_runtime_metal.arch import Arch
from tiny_runtime_metal.memory import Memory
from tiny_runtime_metal.messages import Handle, Messages, text_of
from tiny_runtime_metal.renderer import in_table

SAFE = 0  # MTLMathModeSafe
READ_AND_WRITE = 3  # MTLResourceUsageRead | MTLResourceUsageWrite


class Program:
  """A loaded kernel. The driver's part of it is released when nobody holds this any more."""

  def __init__(self, messages: Messages, pipeline: Handle, binary: Binary) -> None:
    self.pipeline = pipeline
    self.name = binary.entry
    self.needs = [p.size * p.dtype.itemsize for p in binary.params]
    self.variables = binary.variables
    self.in_table = in_table(len(binary.params), len(binary.variables))
    self.threads: int = messages.send(pipeline, "maxTotalThreadsPerThreadgroup")
    weakref.finalize(self, messages.send, pipeline, "release")


@dataclass(frozen=True)
class Call:
  """A launch: a program with what it is given."""

  program: Program
  buffers: Sequence[tuple[Memory, int]]
  integers: Sequence[int]
  groups: tuple[int, ...]
  threads: tuple[int, ...]

  def check(self) -> None:
    """Raises ValueError for arguments that do not fit the program."""
    program = self.program
    if len(self.buffers) != len(program.needs) or len(self.integers) != len(program.variables):
      raise ValueError(
        f"kernel {program.name} takes {len(program.needs)} buffers and the integers {program.variables}, "
        f"got {len(self.buffers)} buffers and {len(self.integers)} integers"
      )
    for place, ((memory, offset), need) in enumerate(zip(self.buffers, program.needs)):
      try:
        memory.at(offset, need)
      except ValueError as error:
        raise ValueError(f"buffer {place} of kernel {program.name}: {error}") from None
    if math.prod(self.threads) > program.threads:
      raise ValueError(
        f"kernel {program.name} is launched with {' × '.join(map(str, self.threads))} threads in a threadgroup; "
        f"with the registers that it needs, this GPU has room for {program.threads}"
      )

  def encode(self, messages: Messages, encoder: Handle) -> None:
    """Write it into a command buffer."""
    send = messages.send
    send(encoder, "setComputePipelineState:", self.program.pipeline)
    place = len(self.buffers)
    if self.program.in_table:
      addresses = [send(memory.handle, "gpuAddress") + offset for memory, offset in self.buffers]
      set_bytes(messages, encoder, struct.pack(f"{place}Q", *addresses), 0)
      for handle in dict.fromkeys(memory.handle for memory, _ in self.buffers):
        send(encoder, "useResource:usage:", handle, READ_AND_WRITE)
      place = 1
    else:
      for index, (memory, offset) in enumerate(self.buffers):
        send(encoder, "setBuffer:offset:atIndex:", memory.handle, offset, index)
    if self.integers:
      set_bytes(messages, encoder, struct.pack(f"{len(self.integers)}q", *self.integers), place)
    send(encoder, "dispatchThreadgroups:threadsPerThreadgroup:", self.groups, self.threads)


def set_bytes(messages: Messages, encoder: Handle, data: bytes, index: int) -> None:
  """Pass data that Metal copies."""
  messages.send(encoder, "setBytes:length:atIndex:", data, len(data), index)


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
