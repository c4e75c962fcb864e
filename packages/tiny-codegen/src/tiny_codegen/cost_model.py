"""CostModel: the figures behind the estimates of `tiling/cost.py`, each with its unit.

They are rough: what decides is what they say of each other. The defaults are from server cores with AVX-512 and AVX2
(Granite Rapids, Zen 3 to Zen 5). `hatch run refit` (`integration/bench/refit.py`) measures tilings on a machine and
fits figures to them.
"""

from __future__ import annotations

from tiny_uop.records import dataclass

CACHE_LINE = 64
"""Bytes of a cache line."""
LEAST_STEPS = 32
"""Steps of a sum from which software prefetch is worth the few instructions that find out what to ask for."""
ROOM = 7 / 8
"""Of the second cache level: what prefetched data, its source, the next of it and all else that is read may take."""


@dataclass(frozen=True)
class CostModel:
  """What a core takes for multiplying, loading, packing and storing. Times are in cycles of a core."""

  # *** of a core: `CORES` in `processors.py` has other figures for some ***

  multiply_adds: float = 2.0
  """Vectors that are multiplied and added in a cycle."""
  loads: float = 2.0
  """Vectors, and scalars spread over a vector, that are read in a cycle from the first cache level."""
  word_products: float = 0.0
  """Dot products that are not done for each word that is spread over a vector: the load that spreads it has their
  port."""
  load_cycles: float = 0.0
  """Cycles by which each vector or scalar that is read delays multiplying and adding."""
  scattered: tuple[float, float] = (1.0, 1.0)
  """Factor on a step of the sum that reads a few elements of many cache lines: lines in the second level, beyond it."""
  beyond: tuple[float, float] = (1.0, 1.0)
  """Factor on a step of the sum: whose panels do not stay in the second level; of one tap of a strided window."""
  piece_cycles: float = 40.0
  """Cycles of starting on a piece of memory that is not next to the one before, where it does not stay in a cache."""

  # *** computing ***

  latency: float = 5.0
  """Cycles from a multiply-add to the next one of its accumulator, with one for what cannot begin in time."""
  loop: float = 1.0
  """Cycles of an iteration of a sum that go to counting."""
  integers: float = 0.4
  """Multiply-adds of integers in the time of one of floats: processors take three steps."""
  tile: float = 20.0
  """Cycles of a register tile that are none of its sum."""
  tile_vector: float = 2.0
  """Cycles of each vector of a tile's results."""
  clamped_rows: float = 1.02
  """Factor on rows of which some are beyond the end, besides being computed: gates where they are stored."""
  partial_panel: float = 0.4
  """What packed lanes of a partial block cost more than those of a whole one, as a share."""
  written_out: int = 64
  """Vectors of products that are written out for one iteration, at most."""
  window_steps: int = 7
  """Steps of a window's loop, all of which are written out, at most."""
  window_written_out: int = 96
  """Vectors of products of such a loop, if its steps share no elements, at most."""
  spare_registers: int = 2
  """Registers that a window written out needs besides accumulators and vectors."""

  # *** packing: cycles for an element ***

  copy: float = 0.15
  """Where it is adjacent to its neighbours."""
  copy_block: float = 0.3
  """The same in a loop for blocks of rows."""
  copy_every_second: float = 0.3
  """Where every second element is needed, in two vectors and a shuffle."""
  transpose: float = 0.4
  """Where it is adjacent to the next steps of the sum: squares are transposed in registers."""
  gather: float = 1.5
  """Where it is adjacent to neither."""
  gather_branches: float = 4.0
  """Factor on a gather of which some lanes may not happen, and so becomes branches."""
  copy_masked: float = 2.0
  """Factor on a copy of which some lanes may not happen, where vectors have no mask registers."""
  row_start: float = 0.5
  """Vectors whose time starting on a row takes."""
  transposed_run: int = 8
  """Steps of the sum next to each other that are transposed as a square, at least."""
  prefetched: float = 0.2
  """Share of memory's time that is left of packing a window where the steps of the sum before prefetch it."""
  packed_in_first_tile: float = 0.1
  """Share of memory's time that is left of packing a panel where the first tile does it, in the steps of its sum."""
  each_thread: float = 2.0
  """Times that each of several threads packs for itself what all of them need before anything else."""

  # *** storing: cycles for an element ***

  scatter: float = 1.0
  """Of a vector, on its own."""
  store_transposed: float = 0.5
  """Where the rows of a tile are adjacent, so that it is transposed in registers."""
  store_lines: float = 0.25
  """The same where the rows fill cache lines, in a tile of a vector of lanes: in whole squares."""
  short_rows: float = 2.0
  """More for the rows of a transposed tile, shared by them."""
  crowded_rows: float = 5.0
  """More for each piece of such rows, where those of all lanes are in lines of the same sets of a cache."""
  crowded_lanes: float = 0.16
  """More for each element that is stored on its own, for each lane, where those of all lanes are in such lines."""

  # *** reading operands: factors on a step of the sum ***

  computed: float = 2.0
  """Of an operand that is not packed: computing it again and again."""
  gated: float = 1.4
  """Of one that is not packed, with a gate for each row."""
  gated_edges: float = 1.05
  """Of one that is not packed, with gates for the first and the last row."""
  crossing: float = 1.15
  """Of lanes that are not packed and begin anywhere in a cache line."""
  from_second: float = 1.1
  """Of rows that come from the second cache level."""
  far_lines: float = 2.0
  """Factor on the time of lines that are far apart, each in a page of its own."""
  waiting: float = 0.3
  """`scattered[0]` less 1 of a core that waits for all lines that are scattered over the second level."""

  # *** caches: bytes a cycle, and shares ***

  second_bytes: float = 24.0
  """Bytes a cycle from the second level."""
  second_idle_bytes: float = 128.0
  """The same while nothing else waits for it."""
  last_bytes: float = 4.0
  """Bytes a cycle from the last level."""
  filled_second_bytes: float = 12.0
  """Bytes a cycle of panels that fill most of the second level."""
  beyond_second_bytes: float = 8.0
  """Bytes a cycle of panels that do not fit into the second level as a whole."""
  first_share: float = 2 / 3
  """Of the first level: what a panel may take for it to stay there."""
  small_share: float = 1 / 4
  """Of the second level: an operand as small is there anyway."""
  images_share: float = 4 / 9
  """Of the second level: what several images and a panel may take together."""
  two_images_share: float = 2 / 3
  """Of the second level: what two images and a panel may take, where each image is smaller than the panel."""
  panels_share: float = 3 / 8
  """Of the second level: what all panels together may take to stay there."""
  same_sets: int = 512
  """Strides, in elements, of whose multiples neighbouring rows are in the same few sets of a cache."""
  way: int = 4096
  """Bytes after which the sets of the first level come again."""
  rows_of_same_sets: int = 8
  """Rows in lines of the same few sets that stay in a cache, at most."""
  prefetched_steps: int = 64
  """Steps of a sum in which the lanes of the next one can be prefetched, where they are not packed."""

  # *** memory, where operands do not stay in a cache ***

  in_caches: int = 16 << 20
  """Bytes of a kernel's arrays up to which windows do not wait for memory, whatever the order in which they read it."""

  line: float = 5.0
  """Cycles of a cache line of a piece."""
  line_again: float = 0.7
  """Cycles of a line that is read again and again, in order."""
  line_aside: float = 12.0
  """Cycles of a line of rows that are far apart and read side by side, if they are more than `sides`."""
  sides: int = 16
  """Rows side by side that processors fetch ahead of."""
  near_step: int = 4
  """Elements: of a step so small, every line is read."""
  neighbours: int = 64
  """Elements of a row of results that follow each other soon enough to be one piece."""
  panels_row: int = 2048
  """Bytes of a row of panels that are packed together, at most: longer ones take no less time."""

  # *** sums that are no products ***

  chains: tuple[int, ...] = (4, 2)
  """Sums that are made side by side, where one of them has one register, so that additions need not wait."""
  chained_additions: int = 16
  """Additions of vectors: where a sum has fewer, the next one begins before they wait for each other."""
  chained_bytes: int = 16 << 20
  """Bytes: a kernel that reads less is not worth the text of several sums."""

  # *** threads ***

  shared_passes: int = 8
  """Passes over several panels at a time, at least, so that threads have something to share."""
  shared_images: int = 4
  """The same of passes over several images."""
  apart: float = 0.2
  """Share of a kernel's time that is lost where pieces that are read and written one after the other are far apart."""
  rows_apart: float = 0.1
  """The same where threads share each of several images, and not the images."""

  # *** matrix instructions ***

  float_squares_latency: float = 6.0
  """Cycles from a product of 2 × 2 sums of floats (Arm's BFMMLA) to the next one of its accumulator, with one for what
  cannot begin in time."""

  # *** matrix instructions (AMX) ***

  matrix_latency: float = 52.0
  """Cycles until an instruction can add to the result of another one."""
  matrix_each_thread: float = 2.0
  """Factor on packing all of an operand: each of some threads does it."""
  matrix_setup: float = 1500.0
  """Cycles until there are tiles, and of masks on all that is packed for a few."""
  matrix_result: float = 0.25
  """Cycles of a result that goes from its tile to a buffer and back to a vector."""
  matrix_rows: float = 2.0
  """Rows of a tile that are read in a cycle."""
  matrix_rows_beyond: float = 18.0
  """Bytes of rows a cycle from beyond the first level: lines of many rows, not fetched ahead."""
