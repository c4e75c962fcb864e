"""What goes wrong on a GPU, as the driver tells: numbers that it writes to a channel's notifier, which are those of the
messages "NVRM: Xid" in the kernel's log, and where an address led nowhere."""

from __future__ import annotations

ERRORS = {
  8: "the GPU did nothing for too long, and was stopped",
  13: "a kernel failed: an instruction that the GPU does not know, an address that is no multiple of an access's size, "
  "or one outside of shared or local memory",
  31: "an address that is in no buffer, or was used as it must not be",
  32: "the words that were submitted cannot be read",
  43: "a kernel did not end, or had to be ended",
  45: "the channel was taken away, since another one failed",
  48: "memory had an error that could not be corrected",
  62: "the GPU's own processor halted",
  68: "the copy engine failed",
  69: "a launch or a method has a value that the GPU does not take",
  79: "the GPU fell off the bus",
  94: "memory had an error, which no other program sees",
  95: "memory had an error that could not be corrected",
  109: "the GPU could not change to another program in time",
}
"""NVIDIA's "XID Errors", r580: those that programs can see."""
NAMES = {
  0: "is in no buffer", 1: "is in no buffer", 2: "is in no buffer", 3: "is beyond the GPU's limit",
  5: "is not this program's", 6: "may only be read",
}  # fmt: skip
"""NV_PFAULT_FAULT_TYPE_ of open-gpu-doc's dev_mmu: PDE, PDE_SIZE, PTE, VA_LIMIT_VIOLATION, PRIV_VIOLATION,
RO_VIOLATION."""
MMU = 31


def in_words(number: int, address: int, kind: int, text: str) -> str:
  """An error of a channel; `address`, `kind` and `text` are of the last address that led nowhere, if there was one."""
  what = ERRORS.get(number, "see NVIDIA's list of Xid errors")
  if number == MMU and (address or text):
    said = f" ({text})" if text else ""
    what = f"a kernel used an address that {NAMES.get(kind, 'cannot be used')}: {address:#x}{said}"
  return f"the driver ended the queue with error {number} (Xid {number} in `dmesg`): {what}"
