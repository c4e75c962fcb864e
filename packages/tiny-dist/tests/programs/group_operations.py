"""Every operation of the group `mpi`, checked on each rank."""

import struct

from tiny_dist import started
from tiny_dist.groups.discovery import opened

name, group = opened(started())
me, n = group.rank, group.size
counts = [2 * i + 1 for i in range(n)]


def of(rank: int) -> bytes:
  return bytes([rank + 1]) * counts[rank]


out = bytearray(sum(counts))
group.all_gather(memoryview(out), memoryview(of(me)), counts)
assert out == b"".join(map(of, range(n))), out
same = bytearray(2 * n)
group.all_gather(memoryview(same), memoryview(bytes([me, me])), [2] * n)
assert same == bytes(i for i in range(n) for _ in range(2))

# rank i sends i + 1 bytes to each
received = bytearray(sum(i + 1 for i in range(n)))
sent = b"".join(bytes([10 * me + to]) * (me + 1) for to in range(n))
group.all_to_all(memoryview(received), [i + 1 for i in range(n)], memoryview(sent), [me + 1] * n)
assert received == b"".join(bytes([10 * i + me]) * (i + 1) for i in range(n))

data = bytearray([me] * 5)
group.broadcast(memoryview(data), n - 1)
assert data == bytes([n - 1] * 5)

if me == 0:
  group.send(memoryview(b"hello"), n - 1)
elif me == n - 1:
  word = bytearray(5)
  group.recv(memoryview(word), 0)
  assert word == b"hello"

numbers = bytearray(struct.pack("2f", me + 1.0, -me))
group.all_reduce(memoryview(numbers), "float32", "sum")
assert struct.unpack("2f", numbers) == (n * (n + 1) / 2, -n * (n - 1) / 2)
largest = bytearray(struct.pack("q", me))
group.all_reduce(memoryview(largest), "int64", "max")
assert struct.unpack("q", largest) == (n - 1,)

part = bytearray(4)
group.reduce_scatter(memoryview(part), memoryview(struct.pack(f"{n}i", *range(n))), "int32", "sum", [4] * n)
assert struct.unpack("i", part) == (n * me,)

half = [i for i in range(n) if i % 2 == me % 2]
small = group.split(half)
assert (small.rank, small.size) == (half.index(me), len(half))
members = bytearray(len(half))
small.all_gather(memoryview(members), memoryview(bytes([me])), [1] * len(half))
assert members == bytes(half)

try:
  group.all_reduce(memoryview(bytearray(2)), "bfloat16", "sum")
except ValueError as error:
  assert "MPI has no type for bfloat16" in str(error), error
group.barrier()
group.close()
print(f"{name} {me} of {n}" + "\n", end="", flush=True)
