"""Attention in kernels of blocks against PyTorch's, of sizes at which it is chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_sched import schedule_cache_clear
from tiny_sched.softmax import candidates
from tiny_tensor import Tensor
from tiny_tensor.nn import functional
from tiny_tensor.realize import plan_tensors
from tiny_uop import Ops

torch: Any = pytest.importorskip("torch")


@pytest.mark.parametrize("kind", ["causal", "mask", "bias", "groups", "half"])
def test_attention(kind: str) -> None:
  rng = np.random.default_rng(0)
  heads, length, seen, size = 4, 257, 320 if kind in ("mask", "bias") else 257, 32
  keys = 2 if kind == "groups" else heads
  shapes = (rng.standard_normal((2, h, t, size)) for h, t in ((heads, length), (keys, seen), (keys, seen)))
  given = [x.astype(np.float16 if kind == "half" else np.float32) for x in shapes]
  options: dict[str, Any] = {"is_causal": kind in ("causal", "half"), "enable_gqa": kind == "groups"}
  mask: Any = None
  if kind in ("mask", "bias"):
    mask = rng.random((length, seen)) < 0.5 if kind == "mask" else rng.standard_normal((length, seen)).astype("f4")
  q, k, v = (Tensor(x) for x in given)
  got = functional.scaled_dot_product_attention(q, k, v, None if mask is None else Tensor(mask), scale=0.3, **options)
  assert any(call.src[0].arg.name.startswith("softmax_") for call in plan_tensors([got])[0].src)
  want = torch.nn.functional.scaled_dot_product_attention(
    *[torch.from_numpy(x) for x in given], attn_mask=None if mask is None else torch.from_numpy(mask), scale=0.3,
    **options,
  )  # fmt: skip
  error = 2e-3 if kind == "half" else 2e-6
  np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=error, atol=error)


# *** masks: rows of which no position sees anything are 0, and so are their gradients ***

ERRORS = {"float64": 1e-12, "float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}


def masked(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
  """A mask of that shape for PyTorch, some rows of which leave nothing."""
  seen = rng.random(shape) < 0.6
  seen[..., ::5, :] = False
  if kind == "bool":
    return torch.from_numpy(seen)
  bias = rng.standard_normal(shape).astype(np.float32)
  return torch.from_numpy(np.where(seen, bias, -np.inf).astype(np.float32))


def check_masked(
  kind: str, heads: tuple[int, int], sizes: tuple[int, int, int], dtype: str, wide: bool, seed: int
) -> list[str]:
  """Results and gradients are those of PyTorch, that of a mask of floats too. The names of kernels of blocks."""
  rng = np.random.default_rng(seed)
  (many, groups), (length, seen, size) = heads, sizes
  kinds = {"dtype": getattr(torch, dtype)}
  shapes = ((2, many, length, size), (2, groups, seen, size), (2, groups, seen, size))
  theirs = [torch.from_numpy(rng.standard_normal(s)).to(**kinds).requires_grad_() for s in shapes]
  mask = masked(kind, (2, many, length, seen) if wide else (length, seen), rng)
  if kind == "trained":
    mask = mask.to(**kinds).requires_grad_()
    theirs.append(mask)
  elif kind == "float":
    mask = mask.to(**kinds)
  want = torch.nn.functional.scaled_dot_product_attention(*theirs[:3], attn_mask=mask, enable_gqa=many != groups)
  want.double().square().sum().backward()
  ours = [Tensor(x.detach()).realize().requires_grad_(x.requires_grad) for x in [*theirs[:3], mask]]
  q, k, v, bias = ours
  got = functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=many != groups)
  got.double().square().sum().backward()
  found = [got, *[x.grad for x in ours[: len(theirs)] if x.grad is not None]]
  assert len(found) == 1 + len(theirs)
  names = [call.src[0].arg.name for call in plan_tensors(found)[0].src if call.src[0].op is Ops.SINK]
  got.realize(*found[1:])
  for a, b in zip(found, [want.detach(), *[x.grad for x in theirs]], strict=True):
    large = max(1.0, float(b.double().abs().max()))
    np.testing.assert_allclose(a.double().numpy() / large, b.double().numpy() / large, rtol=0, atol=ERRORS[dtype])
  return [name for name in names if name.startswith("softmax")]


@pytest.mark.parametrize(
  ("kind", "dtype", "wide"), [("float", "float32", False), ("bool", "bfloat16", True), ("trained", "float32", False)]
)
def test_rows_that_see_nothing(kind: str, dtype: str, wide: bool) -> None:
  check_masked(kind, (4, 2), (9, 13, 8), dtype, wide, 0)


@pytest.fixture
def every_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """Kernels of blocks are for all sizes."""
  monkeypatch.setattr(candidates, "LEAST_SCORES", 0)
  schedule_cache_clear()
  yield
  schedule_cache_clear()


@pytest.mark.usefixtures("every_size")
@pytest.mark.parametrize(
  ("kind", "dtype"),
  [
    ("float", "bfloat16"),
    *[pytest.param(*case, marks=pytest.mark.nightly) for case in (("bool", "float16"), ("float", "float32"))],
  ],
)
def test_rows_that_see_nothing_in_blocks(kind: str, dtype: str) -> None:
  names = check_masked(kind, (2, 2), (64, 64, 16), dtype, False, 1)
  assert [name.split("_4x")[0] for name in names] == ["softmax", "softmax_gradients", "softmax_gradients"]


MASKS = {
  "kind": st.sampled_from(["float", "bool", "trained"]),
  "heads": st.sampled_from([(1, 1), (4, 2), (3, 1), (2, 2)]),
  "dtype": st.sampled_from(sorted(ERRORS)),
  "wide": st.booleans(),
  "seed": st.integers(0, 1000),
}


@pytest.mark.nightly
@given(sizes=st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 20)), **MASKS)
def test_any_mask(**case: Any) -> None:
  check_masked(**case)


@pytest.mark.nightly
@pytest.mark.usefixtures("every_size")
@given(sizes=st.tuples(st.integers(32, 150), st.integers(32, 150), st.sampled_from([16, 20, 32])), **MASKS)
def test_any_mask_in_blocks(**case: Any) -> None:
  check_masked(**case)
