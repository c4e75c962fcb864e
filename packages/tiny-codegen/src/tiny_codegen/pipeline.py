"""The passes from a kernel to a list of instructions, in order."""

from __future__ import annotations

from tiny_codegen.decompose import decompose, fuse
from tiny_codegen.lower.atomics import choose_atomics, lower_accumulate, order_loops
from tiny_codegen.lower.clamp_rows import clamp_rows
from tiny_codegen.lower.cut_edges import cut_edges
from tiny_codegen.lower.gates import lower_gates
from tiny_codegen.lower.index_types import lower_index
from tiny_codegen.lower.linearise import linearise
from tiny_codegen.lower.merge_loops import merge_loops
from tiny_codegen.lower.multiply_by_lane import multiply_by_lane
from tiny_codegen.lower.pairwise_sum import pairwise_sum
from tiny_codegen.lower.peel import peel_blocks
from tiny_codegen.lower.prefetch.insert import drop_hints, prefetch
from tiny_codegen.lower.reduce import lower_reduce
from tiny_codegen.lower.separate import separate
from tiny_codegen.lower.simplify import simplify_kernel
from tiny_codegen.lower.skip_masked_sums import skip_masked_sums
from tiny_codegen.lower.split_loops import split_loops
from tiny_codegen.lower.store_tiles import store_tiles
from tiny_codegen.lower.stream_stores import stream_stores
from tiny_codegen.lower.tighten_sums import tighten_sums
from tiny_codegen.lower.transpose_in_registers import transpose_in_registers
from tiny_codegen.lower.unroll import unroll
from tiny_codegen.lower.vectorize import vectorize
from tiny_codegen.lower.workgroups import lower_workgroups
from tiny_codegen.matrix.byte_products import find_dot_products
from tiny_codegen.matrix.dot_products import lower_offsets, without_dot_products
from tiny_codegen.matrix.processor_tiles import lower_matrices
from tiny_codegen.matrix.square_products import lower_squares
from tiny_codegen.opt.optimise import optimise
from tiny_codegen.staging.double_buffer import double_buffer
from tiny_codegen.staging.stage import lower_stages
from tiny_uop import Ops
from tiny_uop.context import NOOPT
from tiny_uop.passes import Pass

TARGET = ("target",)

PASSES: tuple[Pass, ...] = (
  Pass("drop_hints", "PREFETCHes in the kernel go, where the target has none.", drop_hints, TARGET),
  Pass("simplify", "Algebra on addresses and gates; loops of one iteration go.", simplify_kernel),
  Pass("separate_loops",
       "REDUCEs and ENDs that cannot run as one loop get a copy each: a softmax's sum needs its maximum.", separate),
  Pass("order_loops",
       "Loops that carry a dependence (out[index[i]] += x[i]) run in order, or update memory atomically.",
       order_loops, TARGET),
  Pass("split_loops", "Loops are cut where a condition on their counter changes: concatenation, padding.",
       split_loops, TARGET, True, NOOPT),
  Pass("merge_loops", "Neighbouring loops that walk through memory as one become one.", merge_loops, (), True, NOOPT),
  Pass("find_dot_products",
       "Sums of products of the bytes of two words become dot products, where the target has them.",
       find_dot_products, TARGET),
  Pass("optimise", "Opts, given or chosen by heuristics, are applied: tiles, threads, vectors, tensor cores of GPUs.",
       optimise, ("target", "opts")),
  Pass("choose_atomics", "Updates are atomic only where threads share their loops.", choose_atomics),
  Pass("dot_product_offsets",
       "Signed numbers in unsigned × signed dot products: what the offset of 128 adds is subtracted.",
       lower_offsets, TARGET),
  Pass("stage", "Operands that a tile reuses (STAGE) go into a packed buffer (CPU) or shared memory (GPU).",
       lower_stages, TARGET),
  Pass("matrix_tiles", "Register tiles become matrix instructions of processors (AMX); for GPUs, an Opt has done that.",
       lower_matrices, TARGET),
  Pass("workgroups", "GLOBAL, LOCAL and GROUP loops become hardware counters: places of workgroups and threads.",
       lower_workgroups, TARGET),
  Pass("peel", "The last, partial block of a padded loop becomes a loop of its own.", peel_blocks, TARGET, True),
  Pass("cut_edges", "Padded windows: the edges of an image apart from its inside, where loads need no gates.",
       cut_edges, TARGET, True),
  Pass("clamp_rows",
       "Rows of a register tile past the end of the matrix read its last row, so that loads need no gate.",
       clamp_rows, TARGET, True),
  Pass("skip_masked_sums",
       "A sum whose result a mask drops in a whole tile is not computed (causal attention: scores).",
       skip_masked_sums, (), True),
  Pass("tighten_sums", "A sum of masked terms ends where the mask does (causal attention: scores times values).",
       tighten_sums, (), True),
  Pass("store_tiles",
       "What follows the sums of a tile is computed and stored by a loop, where written out it would be long.",
       store_tiles, TARGET, True),
  Pass("vectorize", "VECTOR loops become vectors.", vectorize),
  Pass("unroll", "UPCAST and UNROLL loops are written out.", unroll),
  Pass("square_products",
       "Pairs of rows and of lanes of a register tile become products of 2 × 2 sums (Arm: SMMLA, BFMMLA).",
       lower_squares, TARGET),
  Pass("transpose_in_registers",
       "Tiles whose lanes lie far apart in memory are transposed by shuffles: loads and stores of vectors.",
       transpose_in_registers, TARGET, True),
  Pass("pairwise_sum", "Long sums of floats are summed in blocks, for small errors.", pairwise_sum, TARGET, True,
       NOOPT),
  Pass("separate_sums", "As separate_loops, once more: unrolled sums may need loops of their own.", separate),
  Pass("reduce", "REDUCE becomes a loop that updates an accumulator.", lower_reduce, TARGET),
  Pass("double_buffer", "The next tile of shared memory is filled while one is computed.",
       double_buffer, TARGET, True, NOOPT),
  Pass("accumulate", "Updates that are not atomic load, combine and store.", lower_accumulate),
  Pass("gates", "Scalar loads under a condition read element 0 where it does not hold, and select: no branch.",
       lower_gates, TARGET),
  Pass("index_types", "index becomes int32 or int64, by bounds.", lower_index, TARGET),
  Pass("dot_products", "Dot products for which the target has no instruction become products and sums.",
       without_dot_products, TARGET),
  Pass("decompose", "Ops and types that the target lacks are made of those that it has.", decompose, TARGET),
  Pass("fuse", "Arithmetic, not kernels: a*b + c becomes a multiply-add, a + -b a subtraction, if the target has it.",
       fuse, TARGET),
  Pass("multiply_by_lane",
       "Scalars of a register tile that are next to each other are loaded as a vector (Arm: multiply-adds by a lane).",
       multiply_by_lane, TARGET, True),
  Pass("linearise", "The graph becomes a list of instructions.", linearise, gives="program"),
  Pass("stream_stores", "Results that no cache keeps are stored past the caches (non-temporal stores).",
       stream_stores, TARGET, True, None,
       Ops.LINEAR, "program"),
  Pass("prefetch", "Loops ask for cache lines some iterations before they are used.", prefetch, TARGET, True, NOOPT,
       Ops.LINEAR, "program"),
)  # fmt: skip
"""The passes of the code generator, in their order."""
OPTIONAL = frozenset(p.name for p in PASSES if p.optional)
