"""Control groups of Linux: what a container, or a service, may have of the machine. Other systems have none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def group_limits(*files: str, root: Path = Path("/")) -> Iterator[tuple[int, ...]]:
  """The positive numbers in a controller's files, of this process's control group and of all around it, where the
  system is mounted: version 2 in one tree, version 1 in a tree for each controller.

  In a container, the path of the group may be the one that its host sees; the mounted tree begins at the group then.
  """
  mounted, controller = root / "sys/fs/cgroup", files[0].split(".")[0]
  try:
    own = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
  except OSError:
    return
  for number, controllers, path in own:
    if number == "0":
      trees = [mounted, mounted / "unified"]
    elif controller in controllers.split(","):
      trees = [mounted / controllers, mounted / controller]
    else:
      continue
    group = PurePosixPath(path.strip("/"))
    for folder in dict.fromkeys(tree / place for tree in trees for place in (group, *group.parents)):
      try:
        numbers = [int(n) for file in files for n in (folder / file).read_text().split()]
      except (OSError, ValueError):  # no such file, or no limit: "max"
        continue
      if all(n > 0 for n in numbers):  # -1: no limit
        yield tuple(numbers)
