"""Dynamic scheduling: a worker claims chunk after chunk of the loop that workers share.

What a kernel computes before that loop, as panels that all of its iterations read, each call of it computes anew. The
entry point of a target with `claims` is therefore passed `int64_t claim(void* pool, int64_t range[2])`, and `pool`:
after [begin, end) it goes on with what that writes to `range`, until it gives 0. Both are null where [begin, end) is
all there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tiny_codegen.render.llvm.function import Function, is_thread_range
from tiny_uop import Ops, UOp

ARGUMENTS = ("ptr %claim", "ptr %pool")


def prepares(linear: Sequence[UOp]) -> bool:
  """Whether a kernel stores something before the loop that workers share."""
  shared = next((place for place, u in enumerate(linear) if is_thread_range(u)), 0)
  return any(u.op is Ops.STORE for u in linear[:shared])


def begin_chunk(body: Function) -> tuple[str, str]:
  """Begin what is done for each chunk; gives its two ends."""
  body.entry.append("  %range = alloca [2 x i64], align 8")
  before = body.block
  body.emit("br label %part")
  body.label("part")
  body.emit(f"%first = phi i64 [ %begin, %{before} ], [ %claimed.begin, %claimed ]")
  body.emit(f"%last = phi i64 [ %end, %{before} ], [ %claimed.end, %claimed ]")
  return "%first", "%last"


def end_chunk(body: Function) -> None:
  """Go on with another one, if there is one."""
  alone = body.let("icmp eq ptr %claim, null")
  body.branch(alone, "over", "more")
  body.label("more")
  got = body.let("call i64 %claim(ptr %pool, ptr %range)")
  body.branch(body.let(f"icmp eq i64 {got}, 0"), "over", "claimed")
  body.label("claimed")
  body.emit("%claimed.begin = load i64, ptr %range, align 8")
  body.emit("%range.end = getelementptr i64, ptr %range, i64 1")
  body.emit("%claimed.end = load i64, ptr %range.end, align 8")
  body.emit("br label %part")
  body.label("over")
