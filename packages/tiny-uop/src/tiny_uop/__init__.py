"""The intermediate representation shared by the tiny-* packages: types, operations, `UOp`, patterns, rewriting."""

from typing import TYPE_CHECKING

from tiny_uop.args import (
  ACCUMULATORS,
  ASYNC,
  STREAMING,
  Accumulate,
  AxisType,
  Collective,
  CustomGradient,
  Cut,
  KernelInfo,
  NativeCode,
  Opt,
  OptOps,
  ParamInfo,
  ProgramInfo,
  Sharding,
  Stage,
  even_bounds,
  register_arg,
)
from tiny_uop.context import Context, ContextVar, EnvironmentVariable, getenv
from tiny_uop.dtype import AddrSpace, DType, PtrDType, dtypes
from tiny_uop.evaluate import evaluate, exec_alu
from tiny_uop.kernel import (
  collective_of,
  is_kernel,
  kernel_params,
  native_of,
  read_params,
  reads_what_was_there,
  stored_to,
  value_nodes,
  written_params,
)
from tiny_uop.lazy import lazy_names
from tiny_uop.node import live_nodes
from tiny_uop.ops import GroupOp, Ops
from tiny_uop.samples import Samples
from tiny_uop.shape import Shape, prod, same_shape, sint
from tiny_uop.text.print import IR_VERSION, print_uop
from tiny_uop.truncate import truncate
from tiny_uop.uop import Devices, UOp, new_buffer_id

if TYPE_CHECKING:
  from tiny_uop import spec
  from tiny_uop.passes import Pass
  from tiny_uop.pattern import PatternMatcher, Rule, UPat, rule
  from tiny_uop.proof.bounds import BoundsError, check_bounds
  from tiny_uop.rewrite import RewriteLoop, graph_rewrite
  from tiny_uop.spec import SpecError
  from tiny_uop.symbolic.simplify import simplify
  from tiny_uop.text.diff import DiffLine, diff_graphs
  from tiny_uop.text.parse import ParseError, parse_uop

__all__ = [
  "ACCUMULATORS", "ASYNC", "STREAMING", "Accumulate", "AddrSpace", "AxisType", "BoundsError", "Collective", "Context",
  "ContextVar", "CustomGradient", "Cut", "DType", "Devices", "DiffLine", "EnvironmentVariable", "GroupOp", "IR_VERSION",
  "KernelInfo", "NativeCode", "Ops", "Opt", "OptOps", "ParamInfo", "ParseError", "Pass", "PatternMatcher",
  "ProgramInfo", "PtrDType", "RewriteLoop", "Rule", "Samples", "Shape", "Sharding", "SpecError", "Stage", "UOp", "UPat",
  "check_bounds", "collective_of", "diff_graphs", "dtypes", "evaluate", "even_bounds", "exec_alu", "getenv",
  "graph_rewrite", "is_kernel", "kernel_params", "live_nodes", "native_of", "new_buffer_id", "parse_uop", "print_uop",
  "prod", "read_params", "reads_what_was_there", "register_arg", "rule", "same_shape", "simplify", "sint", "spec",
  "stored_to", "truncate", "value_nodes", "written_params",
]  # fmt: skip

# what hardly a program asks for, and rewriting: who only builds graphs does without
__getattr__ = lazy_names(
  __name__, BoundsError="proof.bounds", check_bounds="proof.bounds", DiffLine="text.diff", diff_graphs="text.diff",
  ParseError="text.parse", parse_uop="text.parse", Pass="passes", PatternMatcher="pattern", Rule="pattern",
  UPat="pattern", rule="pattern", RewriteLoop="rewrite", graph_rewrite="rewrite", spec="", SpecError="spec",
  simplify="symbolic.simplify",
)  # fmt: skip
