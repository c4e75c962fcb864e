"""The figures behind the estimates of `cost.py`: rough, from measurements on server cores, most with AVX-512, some
with AVX2. What decides is what they say of each other.
"""

from __future__ import annotations

MANY = 8  # rows; more than so many are not read from lines of the same few sets of a cache
# cycles, very roughly: of moving one element into near memory where it is adjacent to its neighbours, without and with
# a loop for blocks of rows, where it is adjacent to the next steps of the sum, and where neither; of storing one
# element of a vector on its own, and where the rows of the tile are adjacent
COPY, COPY_BLOCK, TURN, GATHER, SCATTER, TURNED = 0.15, 0.3, 0.4, 1.5, 1.0, 0.5
# of moving one where every second one is needed, in two vectors and a shuffle
EVERY_SECOND = 0.3
# how many times a gather costs of which some lanes may not happen, and so becomes branches; how many times a copy does;
# with vectors of fewer bits than these
BRANCHES, MASKED, MASK_REGISTERS = 4.0, 2.0, 512
ROW = 0.5  # vectors that starting on a row costs
TURN_LEAST = 8  # steps of the sum next to each other that are turned as a square
# of the first cache level, what a panel may take for it to stay there; and what the second and the last one deliver in
# a cycle, in bytes; and what the second delivers while nothing else waits for it
FIRST_LEVEL, SECOND_LEVEL, LAST_LEVEL = 2 / 3, 24.0, 4.0
FILLING = 128.0
# what lines that are scattered over the second level cost a core that waits for them
WAITED = 0.3
# how many times as long its lines take that are far apart, each in a page of its own
FAR_APART = 2.0
# and what comes from it of panels that fill most of it, and of those that do not fit as a whole
JUST_IN_SECOND, BEYOND_SECOND = 12.0, 8.0
# an operand of this share of the second cache level is there anyway
SMALL = 1 / 4
# what reading an operand costs that is not in near memory: computing it again and again, a gate for each row, and gates
# for the first and the last
COMPUTED, GATED, EDGES = 2.0, 1.4, 1.05
# what lanes cost that are read from where they are, and begin anywhere in a cache line
CROSSING = 1.15
# what rows cost of which some are beyond the end, besides being computed: gates where they are stored
OVERHANG = 1.02
# what a partial block of packed lanes costs more than a whole one, where it is as wide
PARTIAL = 0.4
# cycles of an iteration of a sum that go to counting; vectors of products that are written out for one; and steps of a
# loop of a window, all of which are written out, with so many vectors of products if they share no elements
LOOP, WRITTEN_OUT, TAPS, WINDOW_OUT = 1.0, 64, 7, 96
# registers that such a window needs besides accumulators and vectors; and cycles from a multiply-add to the next one of
# its accumulator, with one for what cannot begin in time
SPARE, LATENCY = 2, 5.0
# integers that are multiplied and added, in the time of one multiply-add of floats: processors take three steps
INTEGERS = 0.4
# what rows cost that come from the second cache level
SECOND = 1.1
# of the second level, what several images and a panel may take together; and two images, of which each is smaller
TOGETHER, PAIR = 4 / 9, 2 / 3
# of the second level, what all panels together may take to stay there
WHOLE = 3 / 8
# bytes of a row of panels that are packed together, at most: longer pieces take no less time, and are farther away
SEVERAL = 2048
# strides that are multiples of this put neighbouring rows into the same few sets of a cache
SAME_SETS = 512
# bytes after which the sets of the first cache level come again
WAY = 4096
# steps of a sum in which the lanes of another one can be asked for, which are read from where they are
AHEAD = 64
# of packing a window: the part of memory's time that is left where the steps of the sum before ask for it
ASKED = 0.2
# of packing a panel: the same where the first tile does it, in the steps of its sum
FIRST_TILE = 0.1
# steps of a sum that are worth the few instructions which find out what to ask for; and of the second level, what there
# has to be room in for what is packed, its source, the next of it, and what else is read
LEAST_STEPS, ROOM = 32, 7 / 8
# threads, each of which packs for itself what all of them need before anything else
EACH_THREAD = 2.0
# passes over several panels, or images, at a time, at least, so that threads have something to share
SHARED_PASSES, SHARED_IMAGES = 8, 4
# of what does not stay in a cache: each cache line of a piece, and each line that is read again and again in order
LINE, AGAIN = 5.0, 0.7
# and a line of rows that are far apart and read side by side, if they are more than processors follow
ASIDE, SIDES = 12.0, 16
CACHE_LINE, NEIGHBOURS = 64, 64
NEAR = 4  # elements: of a step so small, every line is read
# of the time of a kernel, what is lost where pieces that are read and written one after the other are far apart; and
# where threads share each of several images, and not the images
APART, ROWS_APART = 0.2, 0.1
# cycles of a tile that are none of its sum: of any, and of each vector of results
TILE, TILE_VECTOR = 20.0, 2.0
# and of the rows of a turned tile that are stored for a lane; and of each of their pieces, where those of all lanes are
# in lines of the same sets of a cache
SHORT, CROWDED = 2.0, 5.0
