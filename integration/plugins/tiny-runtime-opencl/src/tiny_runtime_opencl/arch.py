"""What generated code depends on, as a record and as the text that the contract calls `arch`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tiny_uop.updates import updates

FLAGS = ("fp16", "fp64", "fma", "exact")
ATOMICS = updates("ADD MAX AND OR XOR", ("int32", "uint32"))
"""Updates that threads may make at once: of 32 bits, and no addition of floats (6.12.11)."""


@dataclass(frozen=True)
class Arch:
  """The properties of a device that the code generator uses. Code made for one runs on every device that has them."""

  kind: str
  """`cpu`, `gpu` or `accelerator`."""
  local: int = 0
  """Bytes of local memory, which the threads of a workgroup share. 0: none."""
  group: int = 1
  """Most threads of a workgroup."""
  sizes: tuple[int, int, int] = (1, 1, 1)
  """Most threads of a workgroup along each axis."""
  fp16: bool = False
  """It computes with `half` (cl_khr_fp16)."""
  fp64: bool = False
  """It computes with `double` (cl_khr_fp64)."""
  fma: bool = False
  """`fma` is one instruction, not a function that imitates it."""
  exact: bool = False
  """Division and square roots of floats can be rounded correctly (CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT)."""

  def __str__(self) -> str:
    """`gpu fp64 fma exact local=65536 group=1024 sizes=1024x1024x64`."""
    flags = [name for name in FLAGS if getattr(self, name)]
    sizes = "x".join(map(str, self.sizes))
    return " ".join([self.kind, *flags, f"local={self.local}", f"group={self.group}", f"sizes={sizes}"])

  @classmethod
  def parse(cls, text: str) -> Arch:
    """The inverse of `str`. Raises ValueError, naming the word that it does not know."""
    kind, *words = text.split() or [""]
    values: dict[str, bool | int | tuple[int, int, int]] = {}
    for word in words:
      name, equals, value = word.partition("=")
      try:
        if name in FLAGS and not equals:
          values[name] = True
        elif name == "sizes":
          x, y, z = map(int, value.split("x"))
          values[name] = (x, y, z)
        elif name in ("local", "group"):
          values[name] = int(value)
        else:
          raise ValueError
      except ValueError:
        known = ", ".join(field.name for field in fields(cls))
        raise ValueError(
          f"arch {text!r} of OPENCL: {word!r} is none of {known}; see `python -m tiny_runtime`"
        ) from None
    return cls(kind, **values)  # type: ignore[arg-type]
