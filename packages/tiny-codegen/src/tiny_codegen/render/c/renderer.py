"""Programs as C99 text, and as the C-like languages that a `CDialect` describes.

A vector is as many scalar variables as it has lanes: that is valid in every dialect, and compilers put them back
together. Compile with `-fno-math-errno -ffp-contract=off`: the first keeps square roots free of calls into libm, the
second forbids fusing that MULACC does not ask for.
"""

from __future__ import annotations

from dataclasses import replace

from tiny_codegen.render import base
from tiny_codegen.render.base import Renderer, Writer
from tiny_codegen.render.c.dialect import C99, CDialect, function_name
from tiny_codegen.render.c.expressions import expression, literal
from tiny_uop import Accumulate, AddrSpace, AxisType, DType, GroupOp, Ops, ProgramInfo, PtrDType, UOp, dtypes
from tiny_uop.graph import memory_of
from tiny_uop.records import dataclass

_NOTHING = frozenset({Ops.SINK, Ops.GROUP, Ops.CONST, Ops.AFTER, Ops.LINEAR, Ops.INDEX, Ops.PARAM, Ops.VARIABLE,
                      Ops.PREFETCH})  # fmt: skip


@dataclass(frozen=True)
class Place:
  """Adjacent elements in memory, as expressions of the language: `lanes` of them from `pointer` + `offset` on."""

  pointer: str
  offset: str
  element: DType
  lanes: int
  space: AddrSpace
  written: bool
  """Whether the program may write through this pointer: others point to `const`."""

  def lane(self, lane: int) -> str:
    """One element."""
    return f"{self.pointer}[{self.offset}{f' + {lane}' if lane else ''}]"


class CRenderer(Renderer):
  """C for one dialect. A backend's own language is another `CDialect`, or a subclass that overrides `load` and
  `store` for wide accesses, `buffer` and `integers` for how arguments are passed, `header` for what is put in front of
  some programs only, and `declaration` for attributes.

  The function has the name that `function_name` gives for the kernel's, which may be any text. Buffers of one program
  must not overlap unless they are only read.
  """

  def __init__(self, dialect: CDialect = C99) -> None:
    self.dialect = dialect
    self.name = dialect.name
    self.target = dialect.target

  def render(self, linear: UOp, info: ProgramInfo) -> str:
    return _Program(self, linear, info).text()

  def declaration(self, linear: UOp) -> str:
    """What stands before the name of the function that this program becomes."""
    return self.dialect.kernel

  def header(self, linear: UOp) -> list[str]:
    """Lines in front of the function."""
    return list(self.dialect.header)

  def buffer(self, pointer: str, name: str, place: int) -> tuple[list[str], list[str]]:
    """How buffer number `place` is passed, which the program knows as variable `name` of type `pointer`, with
    `restrict` in it where that holds: parameters of the function, and statements at its start."""
    return [f"{pointer} {name}"], []

  def integers(self, names: list[str], place: int) -> tuple[list[str], list[str]]:
    """How the integers are passed, behind `place` buffers: parameters of the function, and statements at its start."""
    return [f"{self.dialect.type_of(dtypes.int64)} {name}" for name in names], []

  def load(self, place: Place, name: str) -> tuple[list[str], list[str]]:
    """How adjacent elements are read: statements, which may declare a variable `name`, and expressions of the lanes.
    Without statements nothing is read until an expression is evaluated."""
    values = [place.lane(lane) for lane in range(place.lanes)]
    return [], [f"({v} != 0)" for v in values] if place.element.kind == "bool" else values

  def store(self, place: Place, values: list[str]) -> list[str]:
    """Statements that write adjacent elements."""
    return [f"{place.lane(lane)} = {value};" for lane, value in enumerate(values)]


class _Program(Writer):
  """One program on its way to text."""

  def __init__(self, renderer: CRenderer, linear: UOp, info: ProgramInfo) -> None:
    self.renderer, self.dialect, self.linear, self.info = renderer, renderer.dialect, linear, info
    self.name = function_name(info.name)
    self.written = {p.slot for p in info.params if p.written}
    self.values: dict[UOp, list[str]] = {}
    self.memory: list[str] = []
    self.lines: list[str] = []
    self.depth = 1
    self.count = 0
    self.counters = 0  # SPECIALs that are loops
    self.conditions: list[UOp] = []  # of the IFs that are open
    self.shared = any(u.op is Ops.RANGE and u.arg[1] is AxisType.THREAD for u in linear.src)
    self.exchanged = base.exchanged(linear)

  # *** the text ***

  def text(self) -> str:
    arguments = self._arguments()
    for u in self.linear.src:
      if u.op in GroupOp.Elementwise:
        self._elementwise(u)
      elif u.op not in _NOTHING:
        self.visit(u)
    for _ in range(self.counters):
      self._close()
    if self.depth != 1:
      raise ValueError(f"{self.info.name}: {self.depth - 1} loops or branches are never closed")
    body, header = [*self.memory, *self.lines, "}", ""], self.renderer.header(self.linear)
    if not self.dialect.host:
      arguments += self.dialect.parameters
      head = f"{self.renderer.declaration(self.linear)} {self.name}({', '.join(arguments)}) {{"
      return "\n".join([*header, "", head, *body])
    head = f"static inline void {self.name}_body({', '.join([*arguments, 'int64_t begin', 'int64_t end'])}) {{"
    return "\n".join([*header, "", head, *body, *self._host_entry()])

  def _arguments(self) -> list[str]:
    used, made = base.numbers(self.linear, self.info), []
    params = {u.arg: u for u in used if u.op is Ops.PARAM}
    exchanged = {u.arg for u in self.exchanged}
    for place, p in enumerate(self.info.params):
      qualifier = self.dialect.qualifier(AddrSpace.GLOBAL)
      # the program's pointer, not the caller's type: an emulated float is read as its bits
      element = params[p.slot].dtype if p.slot in params else p.dtype
      const = "" if p.written else "const "
      pointer = f"{qualifier}{const}{self._element(element)}*"
      if self.dialect.restrict and p.slot not in exchanged:
        pointer += f" {self.dialect.restrict}"
      parameters, statements = self.renderer.buffer(pointer, f"p{p.slot}", place)
      made += parameters
      self.memory += [f"  {line}" for line in statements]
      if p.slot in params:
        self.values[params[p.slot]] = [f"p{p.slot}"]
    for u, number in used.items():
      if u.op is Ops.VARIABLE:
        self.values[u] = [f"(({self.dialect.type_of(u.dtype)})n{number})"]
    integers = [f"n{number}" for number in range(len(self.info.variables))]
    parameters, statements = self.renderer.integers(integers, len(self.info.params))
    self.memory += [f"  {line}" for line in statements]
    return [*made, *parameters]

  def _host_entry(self) -> list[str]:
    passed = [f"buffers[{place}]" for place in range(len(self.info.params))]
    passed += [f"integers[{place}]" for place in range(len(self.info.variables))]
    call = f"{self.name}_body({', '.join([*passed, 'begin', 'end'])});"
    declared = f"{self.renderer.declaration(self.linear)} {self.name}"
    head = f"{declared}(void** buffers, int64_t* integers, int64_t begin, int64_t end) {{"
    # with nothing to share, whoever gets the first piece does it all
    return [head, f"  {call}" if self.shared else f"  if (begin == 0) {call}", "}", ""]

  def _element(self, pointer: DType) -> str:
    """The type of one lane in memory: a bool takes a byte."""
    element = pointer.base if isinstance(pointer, PtrDType) else pointer
    return self.dialect.type_of(dtypes.uint8 if element.kind == "bool" else element)

  # *** pieces ***

  def _line(self, text: str) -> None:
    self.lines.append("  " * self.depth + text)

  def _open(self, text: str) -> None:
    self._line(text)
    self.depth += 1

  def _close(self) -> None:
    self.depth -= 1
    self._line("}")

  def lanes(self, u: UOp) -> list[str]:
    """Expressions of a value's lanes. Raises ValueError for one that the list has not computed yet."""
    if (found := self.values.get(u)) is not None:
      return found
    if u.op is Ops.CONST:
      values = u.arg if isinstance(u.arg, tuple) else (u.arg,) * u.dtype.count
      return [literal(self.dialect, u.dtype, v) for v in values]
    if u.op is Ops.AFTER:
      return self.lanes(u.src[0])
    raise base.used_too_early(u)

  def _keep(self, u: UOp, values: list[str]) -> None:
    """Name the lanes of a value."""
    kind, names = self.dialect.type_of(u.dtype), self._named(u, len(values))
    for name, value in zip(names, values):
      self._line(f"const {kind} {name} = {value};")

  def _named(self, u: UOp, count: int) -> list[str]:
    """New variables for the lanes of a value."""
    self.values[u] = [f"v{self.count + lane}" for lane in range(count)]
    self.count += count
    return self.values[u]

  def _elementwise(self, u: UOp) -> None:
    operands = [self.lanes(s) for s in u.src]
    # a scalar among vectors (the condition of a WHERE) counts for all lanes
    self._keep(
      u,
      [expression(self.dialect, u, [o[lane if len(o) > 1 else 0] for o in operands]) for lane in range(u.dtype.count)],
    )

  # *** instructions ***

  def visit_alloc(self, u: UOp) -> None:
    assert isinstance(u.dtype, PtrDType)
    size = u.dtype.size * u.dtype.base.count
    aligned = f" {self.dialect.aligned}" if self.dialect.aligned and size > 1 else ""
    self.memory.append(f"  {self.dialect.qualifier(u.dtype.space)}{self._element(u.dtype)} m{u.arg}[{size}]{aligned};")
    self.values[u] = [f"m{u.arg}"]

  def visit_range(self, u: UOp) -> None:
    name, counter = self.dialect.type_of(u.dtype), f"i{self.count}"
    self.count += 1
    first, last = (
      ("0", self.lanes(u.src[0])[0]) if u.arg[1] is not AxisType.THREAD else (f"({name})begin", f"({name})end")
    )
    self.values[u] = [counter]
    self._open(f"for ({name} {counter} = {first}; {counter} < {last}; {counter}++) {{")

  def visit_end(self, u: UOp) -> None:
    for _ in u.src[1:]:
      self._close()

  def visit_special(self, u: UOp) -> None:
    """A hardware counter; in a language without any, a loop around all that follows."""
    name = self.dialect.type_of(u.dtype)
    if (found := base.hardware_counter(self.dialect.name, self.dialect.counters, u)) is not None:
      self._line(f"const {name} {u.arg} = {found};")
    else:
      self.counters += 1
      self._open(f"for ({name} {u.arg} = 0; {u.arg} < {self.lanes(u.src[0])[0]}; {u.arg}++) {{")
    self.values[u] = [str(u.arg)]

  def visit_barrier(self, u: UOp) -> None:
    if self.counters:
      raise base.no_barrier(self.info.name, self.dialect.name)
    barrier = self.dialect.barrier if self.exchanged else self.dialect.local_barrier or self.dialect.barrier
    if barrier:
      self._line(barrier)

  def visit_if(self, u: UOp) -> None:
    self.conditions.append(u.src[0])
    self._open(f"if ({self.lanes(u.src[0])[0]}) {{")

  def visit_endif(self, u: UOp) -> None:
    self.conditions.pop()
    self._close()

  def _places(self, index: UOp, lanes: int) -> tuple[list[Place], list[str]]:
    """Where an INDEX points (one place of adjacent elements, or one for each lane) and its gates (none, one, or one
    for each lane).
    """
    assert isinstance(index.dtype, PtrDType)
    element = index.dtype.base
    gates = self.lanes(index.src[2]) if len(index.src) > 2 else []
    offsets = self.lanes(index.src[1])
    if element.count > 1:
      offsets = [f"({offset} * {element.count})" for offset in offsets]
    if len(offsets) == 1 and len(gates) > 1:  # lanes that are adjacent, but not all of them there
      offsets = [f"{offsets[0]}{f' + {lane}' if lane else ''}" for lane in range(lanes)]
    memory = memory_of(index)
    first = Place(
      self.lanes(memory)[0], offsets[0], element.scalar(), lanes if len(offsets) == 1 else 1, index.dtype.space,
      memory.op is not Ops.PARAM or memory.arg in self.written,
    )  # fmt: skip
    return [replace(first, offset=offset) for offset in offsets], gates

  def visit_load(self, u: UOp) -> None:
    places, gates = self._places(u.src[0], u.dtype.count)
    read = [self.renderer.load(place, f"w{self.count}_{n}") for n, place in enumerate(places)]
    statements = [line for lines, _ in read for line in lines]
    values = [value for _, lanes in read for value in lanes]
    if not gates:
      for line in statements:
        self._line(line)
      self._keep(u, values)
      return
    gates = gates if len(gates) > 1 else gates * len(values)
    other = self.lanes(u.src[1]) if len(u.src) > 1 else ["0"] * len(values)
    if not statements:
      self._keep(u, [f"({gate} ? {value} : {o})" for gate, value, o in zip(gates, values, other)])
    else:
      self._read_if(u, gates[0], statements, values, other)

  def _read_if(self, u: UOp, gate: str, statements: list[str], values: list[str], other: list[str]) -> None:
    """A load of which nothing may be read unless its one gate is open."""
    names = self._named(u, len(values))
    self._line(
      f"{self.dialect.type_of(u.dtype)} {', '.join(f'{name} = {value}' for name, value in zip(names, other))};"
    )
    self._open(f"if ({gate}) {{")
    for line in [*statements, *(f"{name} = {value};" for name, value in zip(names, values))]:
      self._line(line)
    self._close()

  def visit_store(self, u: UOp) -> None:
    values = self.lanes(u.src[1])
    places, gates = self._places(u.src[0], len(values))
    if isinstance(u.arg, Accumulate):
      self._line(self._atomic(u, places[0], values[0]))
      return
    if gates and u.src[0].src[2] in self.conditions:
      gates = []
    if len(places) == 1 and gates:
      self._open(f"if ({gates[0]}) {{")
    for lane, place in enumerate(places):
      gate = f"if ({gates[lane if len(gates) > 1 else 0]}) " if gates and len(places) > 1 else ""
      for line in self.renderer.store(place, values[lane : lane + place.lanes]):
        self._line(gate + line)
    if len(places) == 1 and gates:
      self._close()

  def _atomic(self, u: UOp, place: Place, value: str) -> str:
    """The statement of an atomic STORE; a gate is an IF around it (`linearise`)."""
    known = self.dialect.target.has_atomic(place.space, u.arg.op, place.element)
    if not known or (found := dict(self.dialect.atomics).get(u.arg.op)) is None:
      raise base.no_atomic(self.dialect.name, u)
    kind = self.dialect.type_of(place.element)
    at, space = f"&{place.pointer}[{place.offset}]", self.dialect.qualifier(place.space)
    return found.format(place=at, value=value, type=kind, space=space) + ";"

  def visit_vectorize(self, u: UOp) -> None:
    self.values[u] = [lane for s in u.src for lane in self.lanes(s)]

  def visit_extract(self, u: UOp) -> None:
    lanes = u.arg if isinstance(u.arg, tuple) else (u.arg,)
    self.values[u] = [self.lanes(u.src[0])[lane] for lane in lanes]

  def visit_mma(self, u: UOp) -> None:
    """A call of the dialect's function: addresses of the lanes of the result, then the lanes of a, b and c."""
    if (function := dict(self.dialect.tensor_cores).get(u.arg)) is None:
      raise base.no_tensor_core(self.dialect.name, u)
    names = self._named(u, u.dtype.count)
    self._line(f"{self.dialect.type_of(u.dtype)} {', '.join(names)};")
    passed = [lane for s in u.src for lane in self.lanes(s)]
    self._line(f"{function}({', '.join([*(f'&{name}' for name in names), *passed])});")

  def visit_shuffle(self, u: UOp) -> None:
    found = dict(self.dialect.exchanges).get(u.dtype.scalar())
    if found is None:
      raise base.no_exchange(self.dialect.name, u)
    self._keep(u, [found.format(value=lane, mask=u.arg) for lane in self.lanes(u.src[0])])
