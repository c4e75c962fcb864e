"""Metal source as C++: what of it a host compiler needs told, and how its kernel is called."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpu_model.machine import library
from gpu_model.toolchain import HERE, KERNEL, Refused, built

KERNELS = re.compile(
  r"^(?:\[\[max_total_threads_per_threadgroup\((\d+)\)\]\] )?kernel void (\w+)\((.*)\) \{$", re.MULTILINE
)
PARAMETER = re.compile(r"(?P<type>.+?) ?(?P<name>\w+) \[\[(?P<what>\w+)(?:\((?P<index>\d+)\))?\]\]")
# C++ has no memory that the threads of a group share: an array is in bytes that are there once; the machine is told
SHARED = re.compile(r"^( *)threadgroup (\w+) (\w+)\[(\d+)\];$", re.MULTILINE)
ONCE = r"""\1alignas(16) static char \3_bytes[sizeof(\2) * \4];
\1\2* const \3 = (\2*)\3_bytes;
\1machine_shared("\3", \3_bytes, sizeof \3_bytes);"""
SPACES = {"device", "threadgroup", "thread", "constant"}
POINTER = re.compile(r"((?:\w+ )*\w+)\* ?[\w)]")
DECLARED = re.compile(rf"\b({'|'.join(SPACES)}) [^;,()=]*?\b(\w+)(?: \[\[|\[\d+\];| =)")
CAST = re.compile(r"\((\w+) [\w ]+\*\)\((\w+) \+ ")
POSITIONS = {"threadgroup_position_in_grid": "group", "thread_position_in_threadgroup": "thread"}
CALL = """
extern "C" MODEL void model_call(void** arguments, const unsigned* group, const unsigned* thread_) {{
  const uint3 at_group = {{group[0], group[1], group[2]}}, at_thread = {{thread_[0], thread_[1], thread_[2]}};
  {name}({passed});
}}
"""


@dataclass(frozen=True)
class Argument:
  """A parameter that has an index in the table of buffers."""

  index: int
  name: str
  writable: bool


def check_spaces(source: str) -> None:
  """Raises Refused for a pointer without an address space, and for a cast into another, as Apple's compiler does."""
  for pointer in POINTER.findall(source):
    if SPACES.isdisjoint(pointer.split()):
      raise Refused(f"a pointer to {pointer} says no address space")
  spaces = {name: space for space, name in DECLARED.findall(source)}
  for space, name in CAST.findall(source):
    if spaces.get(name, space) != space:
      raise Refused(f"{name} is in {spaces[name]} memory, and is cast to a pointer into {space} memory")


class Library:
  """What the driver makes of a source. Raises Refused where it is not one."""

  def __init__(self, source: str) -> None:
    self.source = source
    check_spaces(source)
    found = KERNELS.search(source)
    if found is None:
      raise Refused("no function is a kernel")
    self.name = found[2]
    self.most_threads = int(found[1]) if found[1] else 1024
    self.parameters = [PARAMETER.fullmatch(text) for text in found[3].split(", ")]
    if None in self.parameters:
      raise Refused(f"a parameter of {self.name} has no attribute that says what it is: {found[3]}")
    self.path = built(self.as_cpp, (*KERNEL, f"-I{HERE / 'metal'}"))

  @cached_property
  def arguments(self) -> list[Argument]:
    """The parameters that are bound by index, in order."""
    found = [p for p in self.parameters if p is not None and p["what"] == "buffer"]
    made = [Argument(int(p["index"]), p["name"], re.search(r"\b(const|constant)\b", p["type"]) is None) for p in found]
    return sorted(made, key=lambda argument: argument.index)

  @property
  def as_cpp(self) -> str:
    """The source for a host compiler, with a function that calls the kernel."""
    passed = []
    for parameter in self.parameters:
      assert parameter is not None
      kind, what, index = parameter.group("type", "what", "index")
      if what == "buffer":
        passed.append(f"*({kind[:-1]}*)arguments[{index}]" if kind.endswith("&") else f"({kind})arguments[{index}]")
      elif what in POSITIONS:
        passed.append(f"at_{POSITIONS[what]}")
      else:
        raise Refused(f"the model knows no attribute [[{what}]]")
    return SHARED.sub(ONCE, self.source) + CALL.format(name=self.name, passed=", ".join(passed))

  @cached_property
  def call(self) -> Any:
    """The function that the machine calls for each thread."""
    library()
    return ctypes.CDLL(str(self.path)).model_call
