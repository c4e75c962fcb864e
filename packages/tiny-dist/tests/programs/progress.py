"""What is under way arrives while this process does something else and calls no MPI: it looks at its memory."""

import time

from tiny_dist import init
from tiny_dist.groups.protocol import Overlapping

world = init()
group, n, me = world.group, world.size, world.rank
part = 4 << 20
sent = b"".join(bytes([10 * me + to + 1]) * part for to in range(n))
received = bytearray(n * part)
assert isinstance(group, Overlapping)
end = group.begin_all_to_all(memoryview(received), [part] * n, memoryview(sent), [part] * n)
limit = time.monotonic() + 20
while time.monotonic() < limit and any(received[(i + 1) * part - 1] != 10 * i + me + 1 for i in range(n)):
  time.sleep(0.01)
print(f"arrived {time.monotonic() < limit}" + "\n", end="", flush=True)
end()
assert received == b"".join(bytes([10 * i + me + 1]) * part for i in range(n))
