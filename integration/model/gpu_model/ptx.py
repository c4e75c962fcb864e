"""PTX as C++: each instruction becomes a statement, with what it does in cuda/ptx.h."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gpu_model.machine import library
from gpu_model.toolchain import KERNEL, Refused, built

ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)\s*((?:\.\w+ [\d, ]+\s*)*)\{(.*?)\n\}", re.DOTALL)
REGISTERS = re.compile(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>")
ARRAY = re.compile(r"\.(shared|local) \.align (\d+) \.b8\s+([\w$]+)\[(\d+)\]")
STATEMENT = re.compile(r"(?:@(!?)%(\w+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
OPERANDS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")
ADDRESS = re.compile(r"\[([%\w$]+?)(?:\+(-?\d+))?\]")
AT_LAUNCH = re.compile(r"\.extern \.shared \.align (\d+) \.b8\s+([\w$]+)\[\]")
SPECIAL = {f"{name}.{axis}": f"{name}_{axis}" for name in ("tid", "ctaid") for axis in "xyz"}
SPECIAL["laneid"] = "machine_lane()"
TYPES = frozenset("e4m3 e5m2 tf32 b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 bf16 f32 f64 pred".split())
OF_SEVERAL_TYPES = {"cvt", "mma", "wgmma"}
BINARY = {"add": "add", "sub": "sub", "div": "div", "rem": "rem", "shl": "shl", "shr": "shr"}
LOGIC = {"and": "&", "or": "|", "xor": "^"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "ls": "<=", "hi": ">",
               "hs": ">="}  # fmt: skip
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
ACCUMULATORS = re.compile(r"wgmma\.mma_async[^{]*\{([^}]*)\}")
GAP = 64
"""Bytes that are in no array, between those that a block shares: what is written behind one of them is seen."""
STATIC_SHARED, MOST_SHARED = 48 << 10, 227 << 10
"""Bytes of shared memory that PTX may ask for in itself, and that a block may have at all (compute capability 9.0)."""


@dataclass(frozen=True)
class Signature:
  """What PTX says of a kernel."""

  name: str
  parameters: int
  threads: tuple[int, int, int] | None
  """The block that it is for, if it is for one only."""


class Module:
  """What the driver makes of PTX. Raises Refused where the model cannot."""

  def __init__(self, text: str) -> None:
    text = re.sub(r"//[^\n]*", "", text)
    found, shared = ENTRY.findall(text), ENTRY.sub("", text)
    target = re.search(r"^\.target (\w+)", text, re.MULTILINE)
    if not found or target is None:
      raise Refused("ptxas fatal: no kernel, or no .target, in this text")
    self.target = target[1]
    self.kernels = {
      name: Kernel(name, parameters, directives, body, shared) for name, parameters, directives, body in found
    }


class Kernel:
  """A kernel of a module, `outside` of which arrays are declared that several kernels name: each has its own. Raises
  Refused where the model cannot."""

  def __init__(self, name: str, parameters: str, directives: str, body: str, outside: str) -> None:
    self.body = re.sub(r"\n\t\t+", " ", body)  # an instruction in several lines
    block = re.search(r"\.reqntid (\d+), (\d+), (\d+)", directives)
    threads = (int(block[1]), int(block[2]), int(block[3])) if block else None
    self.signature = Signature(name, parameters.count(".param"), threads)
    self.arrays: dict[str, tuple[int, int]] = {}
    """Where each shared array begins, and its bytes."""
    self.declared = ARRAY.findall(body) + [array for array in ARRAY.findall(outside) if array[2] in body]
    self.extern = AT_LAUNCH.search(outside)
    self.most_at_launch = STATIC_SHARED
    """Bytes of shared memory that a launch may give: cuFuncSetAttribute changes it."""
    self.text = self.as_cpp()

  def as_cpp(self) -> str:
    """The kernel for a host compiler, with a function that calls it."""
    lines, place = [], 0
    for kind, align, name, size in self.declared:
      if kind == "local":
        raise Refused(f"the model knows no array of a thread's own: {name}")
      place = -(-place // int(align)) * int(align)
      self.arrays[name], place = (place, int(size)), place + int(size) + GAP
    if (asked := sum(size for _, size in self.arrays.values())) > STATIC_SHARED:
      raise Refused(f"ptxas error: {asked:#x} bytes of shared data, {STATIC_SHARED:#x} max")
    given_at_launch = ""
    if self.extern is not None:
      place = -(-place // int(self.extern[1])) * int(self.extern[1])
      given_at_launch = f'if (at_launch) machine_shared("{self.extern[2]}", shared + {place}, at_launch);'
      self.arrays[self.extern[2]], place = (place, 0), place + MOST_SHARED
    for kind, name, count in REGISTERS.findall(self.body):
      kind = "bool" if kind == "pred" else kind.replace("b", "u")
      lines += [f"{kind} {name}{number} = 0;" for number in range(int(count))]
    shared = [f'machine_shared("{name}", shared + {begin}, {size});'
              for name, (begin, size) in self.arrays.items() if size]  # fmt: skip
    lines += [*shared, given_at_launch]
    self.accumulators = list(dict.fromkeys(_names(text) for text in ACCUMULATORS.findall(self.body)))
    lines += [f"Accumulators accumulators{n} = {{}};" for n in range(len(self.accumulators))]
    lines += ["Wgmma wgmma = {};"] if self.accumulators else []
    for line in (part.strip() for text in self.body.split("\n") for part in text.split(";") if part.strip()):
      if label := re.fullmatch(r"(\$\w+):", line):
        lines.append(f"{_label(label[1])}:;")
      elif line and not line.startswith((".reg", ".shared", ".local", "{", "}", ".pragma", ".loc")):
        lines.append(self._touched(line) + self._statement(line))
    given = "".join(f", u64 a{n}" for n in range(self.signature.parameters))
    passed = "".join(f", words[{n}]" for n in range(self.signature.parameters))
    body = "\n".join(f"  {line}" for line in lines)
    return f"""#include "cuda/ptx.h"
alignas(1024) static char shared[{place + 1}];
extern "C" unsigned model_at_launch;
unsigned model_at_launch = 0;
static void kernel(u32 ctaid_x, u32 ctaid_y, u32 ctaid_z, u32 tid_x, u32 tid_y, u32 tid_z,
                   const u64* words, u32 at_launch{given}) {{
{body}
}}
extern "C" MODEL void model_call(void** arguments, const unsigned* group, const unsigned* thread) {{
  const u64* words = static_cast<const u64*>(arguments[0]);
  kernel(group[0], group[1], group[2], thread[0], thread[1], thread[2], words, model_at_launch{passed});
}}
"""

  @cached_property
  def _loaded(self) -> ctypes.CDLL:
    library()
    return ctypes.CDLL(str(built(self.text, KERNEL)))

  def call(self, at_launch: int = 0) -> Any:
    """The function that the machine calls for each thread, in blocks with so many bytes of shared memory more."""
    ctypes.c_uint.in_dll(self._loaded, "model_at_launch").value = at_launch
    return self._loaded.model_call

  def _touched(self, line: str) -> str:
    """A look at accumulators of wgmma that an instruction names: they must not be on their way."""
    if line.startswith("wgmma"):
      return ""
    named = set(re.findall(r"%\w+", line))
    touched = [n for n, names in enumerate(self.accumulators) if not named.isdisjoint(names)]
    return "".join(f"wgmma_touched(wgmma, accumulators{n}); " for n in touched)

  def _wgmma(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if mods[0] == "fence":
      return "wgmma.fenced = true;"
    if mods[0] == "commit_group":
      return "wgmma_commit(wgmma);"
    if mods[0] == "wait_group":
      done = [
        f"if (accumulators{n}.done) {{ accumulators{n}.done = false; "
        + " ".join(f"put({name[1:]}, accumulators{n}.d[{place}]);" for place, name in enumerate(names)) + " }"
        for n, names in enumerate(self.accumulators)
      ]  # fmt: skip
      return " ".join([f"wgmma_wait(wgmma, {int(operands[0])});", *done])
    shape = re.fullmatch(r"m64n(\d+)k16", mods[3])
    if mods[0] != "mma_async" or shape is None or kinds[0] != "f32" or kinds[1:] not in (["bf16"] * 2, ["f16"] * 2):
      raise Refused(f"the model knows no wgmma.{'.'.join(mods)}")
    names, (a, b, add, by_a, by_b, turned_a, turned_b) = _names(operands[0].strip("{}")), operands[1:]
    if (add, by_a, by_b) != ("1", "1", "1") or len(names) != int(shape[1]) // 2:
      raise Refused(f"the model knows no wgmma with {operands[1:]} and {len(names)} accumulators")
    number = self.accumulators.index(names)
    begin = " ".join(f"accumulators{number}.d[{place}] = as<f32>({name[1:]});" for place, name in enumerate(names))
    kind = f"wgmma_run<{kinds[1]}, {shape[1]}, {turned_a}, {turned_b}>"
    given = f"{self._value(a, 'u64')}, {self._value(b, 'u64')}"
    return (
      f"if (wgmma_begins(wgmma, accumulators{number})) {{ {begin} }} "
      f"wgmma_add(__LINE__, wgmma, {{{given}, &accumulators{number}, &{kind}, shared, sizeof shared}});"
    )

  def _fence(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if mods[:2] != ["proxy", "async"]:
      raise Refused(f"the model knows no fence.{'.'.join(mods)}")
    return "machine_fence();"

  def _statement(self, line: str) -> str:
    matched = STATEMENT.fullmatch(line)
    if matched is None:
      raise Refused(f"the model cannot read {line!r}")
    negated, guard, opcode, rest = matched.groups()
    operands = [text.strip() for text in OPERANDS.findall(rest)]
    base, *mods = opcode.replace("::", ".").split(".")
    method = getattr(self, f"_{base}", None)
    kinds = [mod for mod in mods if mod in TYPES]
    if mods and mods[-1] == "f32x2":
      text = self._pairs(base, mods, operands)
    elif kinds in (["f32", "f16"], ["f32", "bf16"]) and base != "cvt":
      text = self._mixed(base, mods, operands)
    elif len(set(kinds)) > 1 and base not in OF_SEVERAL_TYPES:
      raise Refused(f"the model knows no {base} of {' and '.join(kinds)}")
    elif method is not None:
      text = method(mods, kinds, operands)
    elif base in BINARY:
      text = self._two(BINARY[base], kinds, operands) if kinds else self._halves(base, mods, operands)
    elif base in LOGIC:
      text = self._logic(LOGIC[base], kinds, operands)
    else:
      raise Refused(f"the model knows no instruction {opcode}")
    condition = f"if ({'!' if negated else ''}{guard}) " if guard else ""
    return f"{condition}{{ {text} }}"

  # *** operands ***

  def _value(self, text: str, kind: str) -> str:
    """An operand as a value of a type."""
    if text.startswith("%"):
      name = text[1:]
      return f"as<{kind}>({SPECIAL[name]})" if name in SPECIAL else name if kind == "pred" else f"as<{kind}>({name})"
    if text in self.arrays:
      return f"as<{kind}>(reinterpret_cast<u64>(shared + {self.arrays[text][0]}))"
    if parameter := re.fullmatch(r"\w+_param_(\d+)", text):
      return f"as<{kind}>(reinterpret_cast<u64>(words + {parameter[1]}))"
    if text.startswith("0f"):
      return f"as<{kind}>(u32(0x{text[2:]}))"
    if text.startswith("0d"):
      return f"as<{kind}>(u64(0x{text[2:]}))"
    number = int(text.rstrip("U"), 0)
    if kind == "pred":
      return "true" if number else "false"
    return f"as<{kind}>(u64({number % (1 << 64)}ull))"

  def _values(self, kinds: list[str], operands: list[str]) -> str:
    return ", ".join(self._value(text, kinds[-1]) for text in operands)

  def _halves(self, base: str, mods: list[str], operands: list[str]) -> str:
    """Arithmetic with both halves of a word as numbers of 16 bits."""
    kind = {"s16x2": "u16", "u16x2": "u16", "f16x2": "f16", "bf16x2": "bf16"}.get(mods[-1])
    if base not in ("add", "fma") or kind is None or mods[:-1] not in ([], ["rn"]):
      raise Refused(f"the model knows no {base}.{'.'.join(mods)}")
    return f"put({operands[0][1:]}, {base}_halves<{kind}>({self._values(['u32'], operands[1:])}));"

  def _pairs(self, base: str, mods: list[str], operands: list[str]) -> str:
    """Arithmetic with both halves of a word of 64 bits as float32 numbers."""
    if base not in ("add", "sub", "mul", "fma") or mods[:-1] not in ([], ["rn"]):
      raise Refused(f"the model knows no {base}.{'.'.join(mods)}")
    words = ", ".join(f"x{n} = {self._value(text, 'u64')}" for n, text in enumerate(operands[1:]))
    halves = (", ".join(f"of_pair(x{n}, {half})" for n in range(len(operands) - 1)) for half in (0, 1))
    done = ", ".join(f"{base}({given})" for given in halves)
    return f"const u64 {words}; put({operands[0][1:]}, as_pair({done}));"

  def _mixed(self, base: str, mods: list[str], operands: list[str]) -> str:
    """Arithmetic of float32 whose operands but the last are narrower numbers (PTX ISA 8.6, 9.7.5)."""
    if base not in ("add", "sub", "fma") or mods[:-2] not in ([], ["rn"]):
      raise Refused(f"the model knows no {base}.{'.'.join(mods)}")
    *narrow, last = operands[1:]
    values = [f"cvt<f32, {mods[-1]}>({self._value(text, mods[-1])}, 'n')" for text in narrow]
    return f"put({operands[0][1:]}, {base}<f32>({', '.join([*values, self._value(last, 'f32')])}));"

  def _two(self, function: str, kinds: list[str], operands: list[str]) -> str:
    to, first, second = operands
    second = self._value(second, "u32" if function in ("shl", "shr") else kinds[-1])
    return f"put({to[1:]}, {function}<{kinds[-1]}>({self._value(first, kinds[-1])}, {second}));"

  def _logic(self, symbol: str, kinds: list[str], operands: list[str]) -> str:
    first, second = (self._value(text, kinds[-1]) for text in operands[1:])
    result = "bool" if kinds[-1] == "pred" else kinds[-1]
    return f"put({operands[0][1:]}, static_cast<{result}>({first} {symbol} {second}));"

  # *** instructions, by name ***

  def _not(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    value = self._value(operands[1], kinds[-1])
    return f"put({operands[0][1:]}, {f'!{value}' if kinds[-1] == 'pred' else f'static_cast<{kinds[-1]}>(~{value})'});"

  def _mul(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if "wide" in mods:
      wide = WIDER[kinds[-1]]
      first, second = (f"static_cast<{wide}>({self._value(text, kinds[-1])})" for text in operands[1:])
      return f"put({operands[0][1:]}, mul<{wide}>({first}, {second}));"
    return self._two("mulhi" if "hi" in mods else "mul", kinds, operands)

  def _mad(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    to, first, second, third = operands
    kind = WIDER[kinds[-1]] if "wide" in mods else kinds[-1]
    product = ", ".join(f"static_cast<{kind}>({self._value(text, kinds[-1])})" for text in (first, second))
    name = "mulhi" if "hi" in mods else "mul"
    return f"put({to[1:]}, add<{kind}>({name}<{kind}>({product}), {self._value(third, kind)}));"

  def _call(self, function: str, kinds: list[str], operands: list[str]) -> str:
    return f"put({operands[0][1:]}, {function}({self._values(kinds, operands[1:])}));"

  def _fma(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return self._call("fma", kinds, operands) if kinds else self._halves("fma", mods, operands)

  def _sqrt(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return self._call("root", kinds, operands)

  def _rcp(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return f"put({operands[0][1:]}, 1 / {self._value(operands[1], kinds[-1])});"

  def _neg(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return self._call(f"neg<{kinds[-1]}>", kinds, operands)

  def _abs(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return self._call(f"abs_<{kinds[-1]}>", kinds, operands)

  def _max(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    values, nan = self._values(kinds, operands[1:]), "true" if "NaN" in mods else "false"
    return f"put({operands[0][1:]}, extreme<{nan}>({values}, true));"

  def _min(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return self._max(mods, kinds, operands).replace(", true));", ", false));")

  def _bfe(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    to, value, at, length = operands
    return (
      f"put({to[1:]}, bfe({self._value(value, kinds[-1])}, {self._value(at, 'u32')}, {self._value(length, 'u32')}));"
    )

  def _prmt(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return self._call("prmt", ["u32"], operands)

  def _shf(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if "wrap" not in mods:
      raise Refused("the model knows no shf.clamp")
    return self._call(f"shf_{mods[0]}", ["u32"], operands)

  def _selp(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    to, first, second, which = operands
    return f"put({to[1:]}, {which[1:]} ? {self._value(first, kinds[-1])} : {self._value(second, kinds[-1])});"

  def _setp(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    """`u` behind a comparison of floats: or one of them is NaN; without it, and none is."""
    to, *compared = operands
    how, kind = mods[0], kinds[-1]
    a, b = (self._value(text, kind) for text in compared)
    either = f"(nan({a}) || nan({b}))"
    if how in ("nan", "num"):
      return f"{to[1:]} = {'!' if how == 'num' else ''}{either};"
    if how in COMPARISONS:
      ordered = f"!{either} && " if "f" in kind else ""
      return f"{to[1:]} = {ordered}({a} {COMPARISONS[how]} {b});"
    return f"{to[1:]} = {either} || ({a} {COMPARISONS[how.removesuffix('u')]} {b});"

  def _mov(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    to, value = operands
    if to.startswith("{"):
      pieces = [piece.strip() for piece in to.strip("{}").split(",")]
      bits = int(kinds[-1][1:]) // len(pieces)
      source = self._value(value, f"u{kinds[-1][1:]}")
      return " ".join(
        f"put({piece[1:]}, static_cast<u{bits}>({source} >> {bits * number}));"
        for number, piece in enumerate(pieces)
        if piece.startswith("%")  # "_" and `tmp`, which LLVM declares in braces around it, are for what nobody wants
      )  # fmt: skip
    if value.startswith("{"):
      pieces = [piece.strip() for piece in value.strip("{}").split(",")]
      bits = int(kinds[-1][1:]) // len(pieces)
      parts = [f"static_cast<u64>({self._value(p, f'u{bits}')}) << {bits * n}" for n, p in enumerate(pieces)]
      return f"put({to[1:]}, static_cast<u{kinds[-1][1:]}>({' | '.join(parts)}));"
    return f"put({to[1:]}, {self._value(value, kinds[-1])});"

  def _cvt(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if (pair := next((mod for mod in mods if mod in ("f16x2", "bf16x2")), None)) and mods[0] == "rn":
      # "a" of two sources becomes the upper half
      high, low = (
        f"static_cast<u32>(as<u16>(cvt<{pair[:-2]}, f32>({self._value(o, 'f32')}, 'n')))" for o in operands[1:]
      )
      return f"put({operands[0][1:]}, {high} << 16 | {low});"
    if mods == ["rna", "tf32", "f32"]:
      return f"put({operands[0][1:]}, round_to_tf32({self._value(operands[1], 'u32')}));"
    if len(kinds) != 2 or {"sat", "rna", "relu"} & set(mods):
      raise Refused(f"the model knows no conversion {'.'.join(mods)}")
    rounding = next((mod[1] if mod != "rni" else "i" for mod in mods if re.fullmatch("r[nzmp]i", mod)), "n")
    return f"put({operands[0][1:]}, cvt<{kinds[0]}, {kinds[1]}>({self._value(operands[1], kinds[1])}, '{rounding}'));"

  def _cvta(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return f"put({operands[0][1:]}, {self._value(operands[1], 'u64')});"

  def _place(self, text: str) -> str:
    """The address in brackets."""
    matched = ADDRESS.fullmatch(text.replace(" ", ""))
    if matched is None:
      raise Refused(f"the model cannot read the address {text}")
    return f"({self._value(matched[1], 'u64')} + {int(matched[2] or 0)}ll)"

  def _access(self, mods: list[str], kinds: list[str], place: str) -> tuple[str, str, int]:
    """What comes first, the type that memory holds, and how many of them."""
    count = next((int(mod[1:]) for mod in mods if re.fullmatch(r"v\d", mod)), 1)
    kind = kinds[-1]
    size = int(re.sub(r"\D", "", kind)) // 8
    return f"const u64 at = {place}; aligned(at, {size * count});", kind, count

  def _ld(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    to, place = operands
    if mods[0] == "param" and (number := re.fullmatch(r"\[\w+_param_(\d+)\]", place)):
      return f"put({to[1:]}, as<{kinds[-1]}>(a{number[1]}));"
    before, kind, count = self._access(mods, kinds, self._place(place))
    targets = [text.strip()[1:] for text in to.strip("{}").split(",")]
    if count == 1:
      return f"{before} put({targets[0]}, *reinterpret_cast<const {kind}*>(at));"
    loads = [f"put({name}, all.part[{n}]);" for n, name in enumerate(targets) if name]
    return " ".join([before, f"const auto all = Parts<{kind}, {count}>::read(at);", *loads])

  def _st(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    place, values = operands
    before, kind, count = self._access(mods, kinds, self._place(place))
    parts = ", ".join(self._value(text.strip(), kind) for text in values.strip("{}").split(","))
    if count == 1:
      return f"{before} *reinterpret_cast<{kind}*>(at) = {parts};"
    return f"{before} const Parts<{kind}, {count}> all{{{{{parts}}}}}; all.write(at);"

  def _atom(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    """An update of memory in one step, of which the value before is not asked for."""
    *to, place, value = operands
    how = [mod for mod in mods if mod not in (*kinds, "relaxed", "gpu", "sys")]
    if len(how) != 2 or how[0] not in ("global", "shared") or how[1] not in ("add", "max", "and", "or", "xor"):
      raise Refused(f"the model knows no atom.{'.'.join(mods)}")
    kind = kinds[-1]
    before = f"update<UPDATE_{how[1]}, {kind}>({self._place(place)}, {self._value(value, kind)})"
    return f"put({to[0][1:]}, {before});" if to and to[0] != "_" else f"{before};"

  _red = _atom

  def _cp(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if mods[:2] == ["async", "commit_group"]:
      return "machine_copies_end();"
    if mods[:2] == ["async", "wait_group"]:
      return f"machine_copies_wait({int(operands[0])});"
    if mods != ["async", "cg", "shared", "global"] or len(operands) not in (3, 4) or operands[2] != "16":
      raise Refused(f"the model knows no cp.{'.'.join(mods)} of {operands[2:]}")
    given = f"{self._value(operands[3], 'u32')}" if len(operands) > 3 else "16"
    return f"copy16({self._place(operands[0])}, {self._place(operands[1])}, {given});"

  def _bra(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return f"goto {_label(operands[0])};"

  def _ret(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return "return;"

  def _bar(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    return "machine_barrier(__LINE__, ORDERS_ALL);"

  _barrier = _bar

  def _shfl(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    to, value, other, clamp, members = operands
    if mods[:2] != ["sync", "bfly"] or "|" in to or int(clamp, 0) != 31 or int(members, 0) != -1:
      raise Refused(f"the model knows no shfl.{'.'.join(mods)} with {', '.join(operands)}")
    given = self._value(value, "u32")
    return f"put({to[1:]}, butterfly(__LINE__, {given}, {self._value(other, 'u32')}));"

  def _ldmatrix(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    if mods[:3] != ["sync", "aligned", "m8n8"] or kinds != ["b16"] or mods[3] not in ("x1", "x2", "x4"):
      raise Refused(f"the model knows no ldmatrix.{'.'.join(mods)}")
    names = [name.strip()[1:] for name in operands[0].strip("{}").split(",")]
    parameters = f"{len(names)}, {'true' if 'trans' in mods else 'false'}"
    results = " ".join(f"put({name}, d[{number}]);" for number, name in enumerate(names))
    return f"u32 d[4]; ldmatrix<{parameters}>(__LINE__, d, {self._place(operands[1])}); {results}"

  def _mma(self, mods: list[str], kinds: list[str], operands: list[str]) -> str:
    shape, element = mods[2], kinds[1]
    function = {
      "m16n8k16": f"mma16<{element}, 16>", "m16n8k8": f"mma16<{element}, 8>", "m16n8k32": f"mma8<{element}, 16>",
      "m8n8k16": f"mma8<{element}, 8>", "m8n8k4": "mma64",
    }.get(shape)  # fmt: skip
    if element in ("e4m3", "e5m2"):
      function = f"mma_float8<{element[1]}, {element[3]}>" if shape == "m16n8k32" else None
    if element == "tf32":
      function = "mma_tf32" if shape == "m16n8k8" else None
    if function is None:
      raise Refused(f"the model knows no mma of {shape}")
    word = "u64" if element == "f64" else "u32"
    names = [[text.strip() for text in operand.strip("{}").split(",")] for operand in operands]
    given = " ".join(
      f"const {word} {name}[] = {{{', '.join(self._value(n, word) for n in group)}}};"
      for name, group in zip("abc", names[1:])
    )
    results = " ".join(f"put({name[1:]}, d[{number}]);" for number, name in enumerate(names[0]))
    return f"{given} {word} d[{len(names[0])}]; {function}(__LINE__, d, a, b, c); {results}"


def _names(text: str) -> tuple[str, ...]:
  """The registers of a list."""
  return tuple(name.strip() for name in text.split(","))


def _label(text: str) -> str:
  return text.replace("$", "")
