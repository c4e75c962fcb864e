"""Settings of this package, with the others in the one table of `tiny_uop.context`. Imported with the package, so that
a `Context` knows them before anything runs."""

from __future__ import annotations

from tiny_uop.context import ContextVar

TINY_CACHE = ContextVar(
  "TINY_CACHE", "", "folder of the disk cache; empty: `$XDG_CACHE_HOME/tiny`, else `~/.cache/tiny`"
)
TRIAL_SECONDS = ContextVar(
  "TRIAL_SECONDS",
  20,
  "seconds in which a plugin has to load, find its devices and open one, in a process of its own before the first use "
  "of an installed version; 0: plugins are used untried",
)
COMPILE_PROCESSES = ContextVar(
  "COMPILE_PROCESSES",
  0,
  "how many processes compile the new kernels of a large schedule, this one included; 0: one per processor, at most 8",
)
QUEUE_TIMEOUT = ContextVar(
  "QUEUE_TIMEOUT",
  600,
  "seconds in which a device with hardware queues has to finish something, else it is given up; 0: any number",
)
PROGRESS = ContextVar(
  "PROGRESS",
  1,
  "1: in a terminal, a line on stderr says which kernel is compiled, where that takes more than a second; 0: no line",
)
PROFILE = ContextVar(
  "PROFILE",
  0,
  "1: record every launch, copy, compile and allocation, and print at exit which kernels took how long; each launch is "
  "waited for. 2: also, launch captured graphs kernel by kernel where their devices do not tell the times of kernels",
)
PROFILE_FILE = ContextVar(
  "PROFILE_FILE",
  "",
  "where `PROFILE=1` writes its records at exit as well: `.json` (Chrome), `.jsonl` (tiny-viz), `.pftrace` "
  "(Perfetto), `.csv`, each also with `.gz`; `%p` stands for the process",
)
