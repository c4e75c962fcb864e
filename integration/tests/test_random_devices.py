"""Random numbers are those of the seed: on the CPU and on the reference device, optimised or not, captured or not."""

from collections.abc import Callable
from typing import Any

import pytest

from tiny_tensor import Context, Tensor, TinyJit

SIZES = (257, 3)  # long enough for vectors and a rest


def draws() -> list[Tensor]:
  """Of all kinds. What follows from bits alone is equal everywhere, normal numbers go through log and cos."""
  with Tensor.train():
    return [
      Tensor.rand(*SIZES),
      Tensor.rand(33, dtype="float64"),
      Tensor.rand(40, dtype="bfloat16"),
      Tensor.randint(*SIZES, low=-100, high=1000),
      Tensor.randint(50, low=-(2**60), high=2**61, dtype="int64"),
      Tensor.ones(200).dropout(0.25),
      Tensor.randperm(12),
      Tensor([1.0, 2.0, 5.0]).multinomial(100, replacement=True),
      Tensor.randn(*SIZES),
    ]


def values(device: str, run: Callable[[], list[Tensor]] = draws, **settings: int) -> list[Any]:
  with Context(DEVICE=device, **settings):
    Tensor.manual_seed(42)
    return [t.flatten().tolist() for t in run()]


@pytest.fixture(scope="module")
def reference() -> list[Any]:
  return values("REF")


def check(found: list[Any], reference: list[Any]) -> None:
  assert found[:-1] == reference[:-1]
  assert found[-1] == pytest.approx(reference[-1], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("noopt", [0, 1])
def test_on_the_cpu(reference: list[Any], noopt: int) -> None:
  check(values("CPU", NOOPT=noopt), reference)


def test_realised_backwards(reference: list[Any]) -> None:
  def run() -> list[Tensor]:
    drawn = draws()
    for t in reversed(drawn):
      t.realize()
    return drawn

  check(values("CPU", run), reference)


def test_captured(reference: list[Any]) -> None:
  with Context(DEVICE="CPU"):
    jitted: TinyJit[[], list[Tensor]] = TinyJit(lambda: [t.realize() for t in draws()])
    for _ in range(2):
      jitted()
    assert jitted.captured
  check(values("CPU", jitted), reference)
