"""The notations of einsum and einops, taken apart."""

from __future__ import annotations

from collections.abc import Sequence


def spelled_out(groups: list[list[str]], extra: list[str]) -> list[list[str]]:
  """Groups with the axes that `...` stands for in its place: groups of their own, or part of the group it is in."""
  out: list[list[str]] = []
  for group in groups:
    if group == ["..."]:
      out += [[e] for e in extra]
    else:
      out.append([n for name in group for n in (extra if name == "..." else [name])])
  return out


def rearrange_sides(formula: str, ndim: int) -> tuple[list[list[str]], list[list[str]]]:
  """The axis groups of both sides of an einops formula, for a tensor of `ndim` axes."""
  sides = formula.split("->")
  if len(sides) != 2:
    raise ValueError(f"rearrange {formula!r} needs one '->'")
  out: list[list[list[str]]] = []
  for side in sides:
    groups: list[list[str]] = []
    inside: list[str] | None = None
    for token in side.replace("(", " ( ").replace(")", " ) ").split():
      if token == "(":
        if inside is not None:
          raise ValueError(f"rearrange {formula!r}: parentheses do not nest")
        inside = ["1"]  # which changes nothing, and tells (...) from ...
      elif token == ")":
        if inside is None:
          raise ValueError(f"rearrange {formula!r}: unbalanced parentheses")
        groups.append(inside)
        inside = None
      elif token not in ("...", "1") and not token.isidentifier():
        raise ValueError(f"rearrange {formula!r}: {token!r} is not the name of an axis")
      elif inside is None:
        groups.append([token] if token != "1" else ["1"])
      else:
        inside.append(token)
    if inside is not None:
      raise ValueError(f"rearrange {formula!r}: unbalanced parentheses")
    out.append(groups)
  left, right = out
  if any("..." in group and len(group) > 1 for group in left):
    raise ValueError(f"rearrange {formula!r}: '...' cannot be part of a group on the left")
  extra = [f"...{i}" for i in range(ndim - len(left) + 1)] if ["..."] in left else []
  return spelled_out(left, extra), spelled_out(right, extra)


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def parse_einsum(formula: str, ndims: Sequence[int]) -> tuple[list[str], str]:
  """Letters of each input and of the output; `...` becomes upper-case-free letters of its own."""
  text = formula.replace(" ", "")
  left, arrow, right = text.partition("->")
  inputs = left.split(",")
  if len(inputs) != len(ndims):
    raise ValueError(f"einsum {formula!r} has {len(inputs)} inputs, got {len(ndims)} tensors")
  spare = [c for c in LETTERS if c not in text]
  width = 0
  for side in (*inputs, right):
    if side.count("...") > 1:
      raise ValueError(f"einsum {formula!r}: {side!r} has more than one '...', the axes without a letter")
  for letters, ndim in zip(inputs, ndims, strict=True):
    named = len(letters.replace("...", ""))
    if named > ndim or ("..." not in letters and named != ndim):
      raise ValueError(f"einsum {formula!r}: {letters!r} names {named} axes, the tensor has {ndim}")
    width = max(width, ndim - named if "..." in letters else 0)
  dots = "".join(spare[:width])
  full = []
  for letters, ndim in zip(inputs, ndims, strict=True):
    missing = ndim - len(letters.replace("...", ""))
    full.append(letters.replace("...", dots[width - missing :] if missing else ""))
  everything = "".join(full)
  if not arrow:
    right = dots + "".join(sorted(c for c in set(everything) - set(dots) if everything.count(c) == 1))
  right = right.replace("...", dots)
  if any(not c.isalpha() for c in everything + right):
    raise ValueError(f"einsum {formula!r}: axes are named by letters")
  if len(set(right)) != len(right) or not set(right) <= set(everything):
    raise ValueError(f"einsum {formula!r}: the output {right!r} must name axes of the inputs, once each")
  return full, right
