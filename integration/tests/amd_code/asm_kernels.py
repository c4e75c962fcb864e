"""Kernels of AMD's GPUs that are written by hand, which several tests use."""

from __future__ import annotations

from tiny_asm_amd import Isa, Kernel, Label, code_object, null, s, v
from tiny_runtime import Binary
from tiny_uop import ParamInfo, UOp, dtypes

N = 64


def doubling(chip: str, swapped: bool = False, wait: bool = True) -> Kernel:
  """p0[i] = p1[i] * 2, by hand; or with a mistake."""
  to, of = (s[6:7], s[4:5]) if swapped else (s[4:5], s[6:7])
  isa = Isa(chip)
  body = [
    isa.s_load_b128(s[4:7], s[0:1], null),
    isa.v_lshl_or_b32(v[0], s[2], 5, v[0]),
    isa.v_lshlrev_b32(v[0], 2, v[0]),
    isa.s_waitcnt(lgkmcnt=0),
    isa.global_load_b32(v[1], v[0], of),
    isa.s_waitcnt(vmcnt=0) if wait else isa.s_nop(0),
    isa.v_add_f32(v[1], v[1], v[1]),
    isa.global_store_b32(v[0], v[1], to),
    isa.s_endpgm(),
  ]
  return Kernel.of(chip, "doubled", body, argument_bytes=16, threads=32)


def doubled(chip: str = "gfx1100", swapped: bool = False, wait: bool = True) -> Binary:
  """The same as a binary of the plugin."""
  return _binary(doubling(chip, swapped, wait))


def counting(chip: str, times: int) -> Binary:
  """A loop of so many rounds, which does nothing else; takes the arguments of `doubled`."""
  isa, loop = Isa(chip), Label("loop")
  subtract = isa.s_sub_co_u32 if chip.startswith("gfx12") else isa.s_sub_u32
  body = [
    isa.s_movk_i32(s[4], times),
    loop,
    subtract(s[4], s[4], 1),
    isa.s_cmp_lg_u32(s[4], 0),
    isa.s_cbranch_scc1(loop),
    isa.s_endpgm(),
  ]
  return _binary(Kernel.of(chip, "counting", body, argument_bytes=16, threads=32))


def _binary(made: Kernel) -> Binary:
  one, sizes = UOp.const(dtypes.int32, 1), [UOp.const(dtypes.int32, n) for n in (N // 32, 32)]
  params = tuple(ParamInfo(n, dtypes.float32, N, n == 0, n == 1) for n in range(2))
  ops, nbytes = UOp.const(dtypes.int32, N), UOp.const(dtypes.int32, 8 * N)
  text = "\n".join(map(str, made.body))
  return Binary(
    code_object([made]), made.name, (sizes[0], one, one), (sizes[1], one, one), params, (), ops, nbytes, text
  )
