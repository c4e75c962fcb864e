"""The emulator of machine code, mostly on gfx1100: modifiers, loops, shared memory, what code must not do, and kernels
whose bytes the plugin's device launches on the model of KFD. Each instruction by itself is in the files beside this."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import amd_code_machine as machine
import numpy as np
import pytest
from asm_kernels import doubled
from gpu_model_devices import conformance, contents, filled
from gpu_model_kernels import SMALL, check_on

from gpu_model.amd_code.emulator import Fault, Unknown
from gpu_model.kfd_backend import ModelBackend
from gpu_model.toolchain import compiler
from tiny_asm_amd import Isa, Label, exec_lo, null, s, v, vcc_lo
from tiny_runtime import DeviceLost

R3, LANES = Isa("gfx1100"), 32
FREE = np.random.default_rng(0)
WORDS = [FREE.integers(0, 1 << 32, LANES, np.uint32) for _ in range(3)]
WORDS[0][:8] = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 31, 32, 0xFFFF]
FLOATS = [(FREE.standard_normal(LANES) * 10.0 ** FREE.integers(-6, 6, LANES)).astype(np.float32) for _ in range(3)]
FLOATS[0][:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3.4e38, 1.0]
ALL = 0xFFFFFFFF


launched, computed = partial(machine.launched, "gfx1100"), partial(machine.computed, "gfx1100")


def same(a: Any, b: Any) -> bool:
  return bool(((a == b) | np.isnan(a) & np.isnan(b)).all())


def test_signs_and_scales() -> None:
  a, b = FLOATS[1], FLOATS[2]
  add = R3.v_add_f32
  for made, wanted in (
    (add(v[10], -abs(v[1]), v[2]), -np.abs(a) + b), (R3.v_add_f32_e64(v[10], v[1], v[2], mul=2), (a + b) * 2),
    (R3.v_add_f32_e64(v[10], v[1], v[2], div=2), (a + b) / 2),
    (R3.v_add_f32_e64(v[10], v[1], v[2], clamp=True), np.clip(a + b, 0, 1)),
    (add(v[10], 0.5, v[1]), a + np.float32(0.5)), (add(v[10], 3.25, v[1]), a + np.float32(3.25)),
  ):  # fmt: skip
    assert same(computed(partial(list, [made]), [a, b]).view(np.float32), wanted.astype(np.float32)), str(made)


def test_compares_write_the_lanes_that_are_on() -> None:
  a, b = WORDS[0], WORDS[1]

  def body() -> list[Any]:
    return [
      R3.s_mov_b32(exec_lo, 0x0000FFFF), R3.v_cmp_lt_i32(vcc_lo, v[1], v[2]), R3.s_mov_b32(exec_lo, -1),
      R3.v_cndmask_b32(v[10], 7, v[2], vcc_lo),
    ]  # fmt: skip

  less = (a.view(np.int32) < b.view(np.int32)) & (np.arange(LANES) < 16)
  assert (computed(body, [a, b]) == np.where(less, b, 7)).all()


def test_loops_and_scalars() -> None:
  loop = Label("loop")
  body = [
    R3.s_mov_b32(s[8], 5), R3.s_mov_b32(s[9], 1), loop, R3.s_mul_i32(s[9], s[9], s[8]), R3.s_sub_u32(s[8], s[8], 1),
    R3.s_cmp_lg_u32(s[8], 0), R3.s_cbranch_scc1(loop), R3.v_mov_b32(v[10], s[9]),
  ]  # fmt: skip
  assert (computed(lambda: body, []) == 120).all()


def test_two_operations_read_before_either_writes() -> None:
  got = computed(lambda: [R3.v_mov_b32(v[10], v[1]), R3.v_mov_b32(v[11], v[2]),
                          R3.v_dual_mov_b32(v[10], v[11]) & R3.v_dual_mov_b32(v[11], v[10])], WORDS[:2], 2)  # fmt: skip
  assert (got == np.stack([WORDS[1], WORDS[0]])).all()


def reversed_in_shared_memory(offset: int = 0, wait: bool = True, barrier: bool = True) -> Any:
  """64 numbers of two waves, in the other order by way of shared memory."""
  out, given = np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32) * 3
  body = [
    R3.s_load_b128(s[4:7], s[0:1], null), R3.v_lshlrev_b32(v[1], 2, v[0]), R3.s_waitcnt(lgkmcnt=0),
    R3.global_load_b32(v[2], v[1], s[6:7]), R3.v_sub_nc_u32(v[3], 63, v[0]), R3.v_lshlrev_b32(v[3], 2, v[3]),
    R3.s_waitcnt(vmcnt=0), R3.ds_store_b32(v[1], v[2]), R3.s_waitcnt(lgkmcnt=0), *([R3.s_barrier()] if barrier else []),
    R3.ds_load_b32(v[4], v[3], offset=offset), *([R3.s_waitcnt(lgkmcnt=0)] if wait else []),
    R3.global_store_b32(v[1], v[4], s[4:5]), R3.s_endpgm(),
  ]  # fmt: skip
  launched(body, [out, given], local=256, threads=64)
  return (out == given[::-1]).all()


def product(a_of: Callable[[int, int], tuple[int, int]] = lambda lane, k: (lane % 16, k)) -> bool:
  """A product of 16 × 16 matrices of halves, whose elements of A a lane has by `a_of`: (row, column)."""
  a, b = (FREE.integers(-8, 9, (16, 16)).astype(np.float16) for _ in range(2))
  fragments = np.zeros((2, LANES, 16), np.float16)
  for lane in range(LANES):
    for k in range(16):
      fragments[0, lane, k], fragments[1, lane, k] = a[a_of(lane, k)], b[k, lane % 16]
  out = np.zeros((8, LANES), np.float32)
  body: list[Any] = [R3.s_load_b128(s[4:7], s[0:1], null), R3.v_lshlrev_b32(v[1], 5, v[0]), R3.s_waitcnt(lgkmcnt=0)]
  for n in range(4):
    body.append(R3.global_load_b128(v[8 + 4 * n : 11 + 4 * n], v[1], s[6:7], offset=1024 * (n // 2) + 16 * (n % 2)))
  body += [R3.s_waitcnt(vmcnt=0), R3.v_wmma_f32_16x16x16_f16(v[32:39], v[8:15], v[16:23], 0)]
  body += [
    R3.v_lshlrev_b32(v[1], 2, v[0]),
    *[R3.global_store_b32(v[1], v[32 + n], s[4:5], offset=128 * n) for n in range(8)],
  ]
  launched([*body, R3.s_endpgm()], [out, fragments])
  wanted, found = a.astype(np.float32) @ b.astype(np.float32), np.zeros((16, 16), np.float32)
  for r in range(8):
    for lane in range(LANES):
      found[2 * r + lane // 16, lane % 16] = out[r, lane]
  return bool((wanted == found).all())


def test_shared_memory_and_barriers() -> None:
  assert reversed_in_shared_memory()


def test_products_of_matrices() -> None:
  assert product()


# *** mutations: what is wrong is found ***


def test_a_wait_that_is_missing() -> None:
  with pytest.raises(Fault, match=r"global_store_b32 v1, v4.*v4 is used before .* waited for by lgkmcnt"):
    reversed_in_shared_memory(wait=False)


def test_a_wrong_offset_of_shared_memory() -> None:
  with pytest.raises(Fault, match="ds_load_b32 .* 4 bytes at 256 of shared memory, which has 256"):
    reversed_in_shared_memory(offset=4)


def test_a_barrier_that_is_missing() -> None:
  with pytest.raises(Fault, match="shared memory is (read|written), and wave . of workgroup 0"):
    reversed_in_shared_memory(barrier=False)


@pytest.mark.parametrize("kind", ["transposed", "halves apart", "rows shifted"])
def test_a_wrong_layout_of_a_matrix(kind: str) -> None:
  layouts: dict[str, Callable[[int, int], tuple[int, int]]] = {
    "transposed": lambda lane, k: (k, lane % 16), "halves apart": lambda lane, k: (lane % 16, (k + lane // 16) % 16),
    "rows shifted": lambda lane, k: ((lane + 1) % 16, k),
  }  # fmt: skip
  if kind == "halves apart":
    with pytest.raises(Fault, match="the halves of the wave have different elements of A"):
      product(layouts[kind])
  else:
    assert not product(layouts[kind])


FAULTS: dict[str, tuple[Callable[[], Sequence[Any]], str]] = {
  "nobody wrote it": (lambda: [R3.v_not_b32(v[10], v[99])], "v99 is read, and nobody wrote it"),
  "no scalar": (lambda: [R3.v_not_b32(v[10], s[50])], "s50 is read, and nobody wrote it"),
  "not in all lanes": (
    lambda: [R3.s_mov_b32(exec_lo, 1), R3.v_mov_b32(v[9], 1), R3.s_mov_b32(exec_lo, -1), R3.v_not_b32(v[10], v[9])],
    "v9 is read, and nobody wrote it in every lane",
  ),
  "outside": (
    lambda: [R3.v_mov_b32(v[10], 0), R3.global_store_b32(v[0], v[10], s[4:5], offset=4095)], "are in no buffer"
  ),
  "loaded over": (
    lambda: [R3.global_load_b32(v[10], v[0], s[4:5]), R3.v_mov_b32(v[10], 0)], "v10 is used before .* vmcnt"
  ),
  "scalar": (lambda: [R3.s_load_b32(s[20], s[0:1], 0), R3.s_mov_b32(s[21], s[20])], "s20 is used before .* lgkmcnt"),
  "unordered": (
    lambda: [R3.s_load_b32(s[20], s[0:1], 0), R3.s_load_b32(s[21], s[0:1], 4), R3.s_waitcnt(lgkmcnt=1),
             R3.s_mov_b32(s[22], s[20])],
    "s20 is used before",
  ),
  "no end": (lambda: [Label("x"), R3.s_branch(Label("x"))], "not done after"),
  "not here": (lambda: [R3.v_interp_p2_f32(v[10], v[0], v[0], v[0])], "is not known here"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_code_must_not_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
  from gpu_model.amd_code import emulator

  monkeypatch.setattr(emulator, "MOST_STEPS", 1000)
  body, message = FAULTS[name]
  with pytest.raises((Fault, Unknown), match=message):
    computed(body, [])


def test_waves_that_do_not_all_come_to_a_barrier() -> None:
  end = Label("end")
  body = [
    R3.v_cmpx_gt_u32(32, v[0]), R3.s_cbranch_execz(end), R3.s_barrier(), end, R3.s_endpgm()
  ]  # fmt: skip
  with pytest.raises(Fault, match="some waves of a workgroup wait at a barrier"):
    launched(body, [np.zeros(1, np.uint32)], threads=64)


C3 = Isa("gfx942")
TOO_SOON: dict[str, tuple[Callable[[int], Sequence[Any]], int, str]] = {
  "a product": (
    lambda n: [*[C3.v_mov_b32(v[r], 0) for r in range(8, 16)], C3.v_mfma_f32_16x16x16_f16(v[12:15], v[8:9], v[8:9], 0),
               C3.s_nop(n), C3.v_mov_b32(v[10], v[12])], 6, "v12 is used before the product of matrices",
  ),
  "a lane's number": (
    lambda n: [C3.v_readfirstlane_b32(s[20], v[0]), C3.s_nop(n), C3.v_readlane_b32(s[21], v[0], s[20]),
               C3.s_nop(1), C3.v_mov_b32(v[10], s[21])], 3, "s20 names a lane 2 instructions after",
  ),
  "permuted lanes": (
    lambda n: [C3.v_mov_b32(v[9], 1), C3.s_nop(n), C3.v_mov_b32(v[10], v[9], row_shr=1, bound_ctrl=True)], 1,
    "DPP reads v9, which was written 2 instructions before",
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_SOON)
def test_what_comes_too_soon_on_cdna(name: str) -> None:
  body, enough, message = TOO_SOON[name]
  machine.computed("gfx942", lambda: body(enough), [])
  with pytest.raises(Fault, match=message):
    machine.computed("gfx942", lambda: body(0), [])


def test_products_hand_their_results_on() -> None:
  product = C3.v_mfma_f32_16x16x16_f16
  body = [*[C3.v_mov_b32(v[r], 0) for r in range(8, 16)], product(v[12:15], v[8:9], v[8:9], 0)]
  body += [product(v[12:15], v[8:9], v[8:9], v[12:15]), C3.s_nop(7), C3.v_mov_b32(v[10], v[12])]
  assert (machine.computed("gfx942", lambda: body, []) == 0).all()


def test_bits_of_a_mask_that_nobody_wrote() -> None:
  """Compilers keep masks of lanes in registers of which they wrote only the lanes that are on."""
  merged = [R3.s_mov_b32(s[21], exec_lo), R3.s_and_b32(s[22], s[20], 0), R3.s_or_b32(s[22], s[22], s[21])]
  assert (computed(lambda: [*merged, R3.v_mov_b32(v[10], s[22])], []) == ALL).all()
  with pytest.raises(Fault, match="s20 is read, and nobody wrote it"):
    computed(lambda: [R3.s_or_b32(exec_lo, s[20], 1)], [])
  with pytest.raises(Fault, match="SCC is read, and comes from a register that nobody wrote"):
    computed(lambda: [R3.s_or_b32(s[22], s[20], 0), R3.s_cselect_b32(s[23], 1, 0)], [])


COPIES: dict[str, Callable[[], list[Any]]] = {
  "gfx942": lambda: [C3.s_mov_b32(s[20], 7), C3.v_mov_b64(v[10:11], s[20:21]), C3.v_mov_b64(v[12:13], v[10:11])],
  "gfx1100": lambda: [
    R3.v_mov_b32(v[8], 7), R3.scratch_store_b64("off", v[8:9], "off"), R3.scratch_load_b64(v[10:11], "off", "off"),
    R3.s_waitcnt(vmcnt=0), R3.v_mov_b32(v[12], v[10]), R3.v_mov_b32(v[13], v[11]),
  ],
}  # fmt: skip


@pytest.mark.parametrize("chip", COPIES)
def test_copies_of_what_nobody_wrote(chip: str) -> None:
  """Compilers copy and spill pairs of registers of which they use one: who uses the other is at fault."""
  move = (C3 if chip == "gfx942" else R3).v_mov_b32

  def shown(word: int) -> Any:
    return machine.computed(chip, lambda: [*COPIES[chip](), move(v[10], v[word])], [], private=16)

  assert (shown(12) == 7).all()
  for word in (11, 13):
    with pytest.raises(Fault, match="v10 is read, and nobody wrote it"):
      shown(word)


def test_a_scalar_load_of_what_the_launch_wrote() -> None:
  body = [R3.global_store_b32(v[0], v[0], s[4:5]), R3.s_waitcnt_vscnt(null, 0), R3.s_load_b32(s[20], s[4:5], 0)]
  with pytest.raises(Fault, match="a scalar load of the byte at .*, which this launch wrote"):
    computed(lambda: body, [])


def test_lanes_that_write_different_values_to_one_place() -> None:
  with pytest.raises(Fault, match="two lanes write different values"):
    computed(lambda: [R3.v_mov_b32(v[9], 0), R3.global_store_b32(v[9], v[0], s[4:5])], [])


def test_workgroups_that_race() -> None:
  out = np.zeros(32, np.uint32)
  body = [R3.s_load_b64(s[4:5], s[0:1], 0), R3.v_lshlrev_b32(v[0], 2, v[0]), R3.v_mov_b32(v[1], s[2]),
          R3.s_waitcnt(lgkmcnt=0), R3.global_store_b32(v[0], v[1], s[4:5]), R3.s_endpgm()]  # fmt: skip
  launched(body, [out])
  with pytest.raises(Fault, match="is written, and wave 0 of workgroup 0 wrote, with no barrier in between"):
    launched(body, [out], groups=2)


# *** under the model of KFD ***

needs_compiler = pytest.mark.skipif(compiler() is None, reason="the model needs a C++ compiler")


@needs_compiler
def test_a_kernel_written_by_hand_runs_on_the_plugins_device() -> None:
  backend = ModelBackend(gpu="gfx1100", machine_code=True)
  device = backend.open(0)
  source, out = filled(device, np.arange(64, dtype=np.float32)), device.alloc(256)
  device.launch(device.load(doubled()), [(out, 0), (source, 0)], [], (2, 1, 1), (32, 1, 1), False)
  assert (contents(device, out) == 2 * np.arange(64)).all()
  device.close()
  assert backend.model.misuse == [] and backend.model.left() == []


@needs_compiler
def test_arguments_that_are_swapped_are_seen() -> None:
  backend = ModelBackend(gpu="gfx1100", machine_code=True)
  device = backend.open(0)
  source, out = filled(device, np.ones(64, np.float32)), filled(device, np.full(64, 5, np.float32))
  device.launch(device.load(doubled(swapped=True)), [(out, 0), (source, 0)], [], (2, 1, 1), (32, 1, 1), False)
  assert (contents(device, out) == 5).all() and (contents(device, source) == 10).all()
  device.close()


@needs_compiler
def test_a_fault_of_code_names_the_instruction() -> None:
  backend = ModelBackend(gpu="gfx1100", machine_code=True)
  device = backend.open(0)
  source, out = filled(device, np.ones(64, np.float32)), device.alloc(256)
  device.launch(device.load(doubled(wait=False)), [(out, 0), (source, 0)], [], (2, 1, 1), (32, 1, 1), False)
  with pytest.raises(DeviceLost):
    device.sync()
  assert re.search(r"v_add_f32_e32 v1, v1, v1 .*v1 is used before what it is loaded with", backend.model.wrong)


GUARDED = ["matmul_half", "linear", "matmul_int8"]
"""Products whose results have other sizes than the tiles of matrix instructions: some lanes store, others do not."""


@needs_compiler
@pytest.mark.parametrize("name", [GUARDED[0], *[pytest.param(n, marks=pytest.mark.nightly) for n in GUARDED[1:]]])
@pytest.mark.parametrize(
  "chip", ["1100", "90a", *[pytest.param(n, marks=pytest.mark.nightly) for n in ("1201", "942", "950")]]
)
def test_all_lanes_are_on_in_products_of_matrices(chip: str, name: str) -> None:
  """LLVM 22 moves RDNA 3's matrix instructions behind the branch on which lanes store, if nothing keeps them."""
  check_on(ModelBackend(gpu=f"gfx{chip}", machine_code=True), SMALL[name](), 1e-3)


@needs_compiler
@pytest.mark.parametrize("chip", ["1100", "1201", "942", "950"])
def test_conformance_of_machine_code(chip: str) -> None:
  """One in 24 cases of levels 1 and 2 of the kit, as LLVM compiles them; all of the kit below."""
  conformance("kfd_backend", "level1 or level2", "--every", "24", name=f"CODE{chip}")


@pytest.mark.nightly
@needs_compiler
@pytest.mark.parametrize("chip", ["1100", "1201", "90A", "942", "950"])
def test_conformance_of_all_machine_code(chip: str) -> None:
  conformance("kfd_backend", "level", name=f"CODE{chip}")
