"""Bad input gives an error of the right type that names the values, and the process stays usable."""

from collections.abc import Callable, Iterator

import pytest

from tiny_runtime import Unavailable, buffer_of
from tiny_tensor import Context, Tensor, TinyJit, dtypes
from tiny_uop import UOp


@pytest.fixture(params=["CPU", "REF"], autouse=True)
def _on(request: pytest.FixtureRequest) -> Iterator[None]:
  """On each device; after the error the same process still computes."""
  with Context(DEVICE=request.param):
    yield
    assert (Tensor([1, 2, 3]) + 1).tolist() == [2, 3, 4]


def unwritten() -> Tensor:
  return Tensor(UOp.new_buffer(Tensor([0]).device, 4, dtypes.float32))


def freed() -> list[float]:
  t = (Tensor([1.0, 2.0]) * 2).realize()
  buffer_of(t.uop.base).free()
  values: list[float] = (t + 1).tolist()
  return values


def jit_of_nothing() -> None:
  jitted = TinyJit(lambda: None)
  for _ in range(2):
    jitted()


CASES: list[tuple[str, Callable[[], object], type[BaseException] | tuple[type[BaseException], ...], list[str]]] = [
  ("shapes that do not broadcast", lambda: Tensor.ones(2, 3) + Tensor.ones(2, 4), ValueError, ["3", "4"]),
  ("matmul", lambda: Tensor.ones(2, 3) @ Tensor.ones(4, 5), ValueError, ["3", "4"]),
  ("matmul of a scalar", lambda: Tensor(1.0) @ Tensor.ones(4, 5), (ValueError, RuntimeError), []),
  ("reshape", lambda: Tensor.ones(2, 3).reshape(7), ValueError, ["7", "2, 3"]),
  ("expand", lambda: Tensor.ones(2, 3).expand(4, 3), ValueError, ["4", "2"]),
  ("permute", lambda: Tensor.ones(2, 3).permute(0, 0), ValueError, ["0, 0"]),
  ("axis", lambda: Tensor.ones(2, 3).sum(axis=5), IndexError, ["5", "2"]),
  ("concatenation", lambda: Tensor.ones(2, 3).cat(Tensor.ones(3, 4)), ValueError, ["3", "4"]),
  ("convolution", lambda: Tensor.ones(1, 3, 8, 8).conv2d(Tensor.ones(4, 2, 3, 3)), ValueError, ["3", "2"]),
  ("ragged list", lambda: Tensor([[1, 2], [3]]), ValueError, []),
  ("unknown dtype", lambda: Tensor([1], dtype="float33"), ValueError, ["float33"]),
  ("unknown device", lambda: Tensor([1], device="TPU").tolist(), RuntimeError, ["TPU"]),
  ("move to an unknown device", lambda: Tensor([1]).to("TPU").tolist(), RuntimeError, ["TPU"]),
  ("no such index of a device", lambda: Tensor([1], device="CPU:99").tolist(), (Unavailable, ValueError), ["99"]),
  ("index", lambda: Tensor.ones(3)[7], IndexError, ["7", "3"]),
  ("negative index", lambda: Tensor.ones(3)[-4], IndexError, ["-4", "3"]),
  ("too many indices", lambda: Tensor.ones(3)[0, 0], IndexError, ["2", "1"]),
  ("float as index", lambda: Tensor.ones(3)[1.5], (TypeError, IndexError), ["1.5"]),
  ("item of many", lambda: Tensor.ones(3).item(), ValueError, ["3"]),
  ("truth of a tensor", lambda: bool(Tensor.ones(3)), (TypeError, ValueError), []),
  ("text as data", lambda: Tensor("hello"), (TypeError, ValueError), ["hello"]),
  ("adding text", lambda: Tensor([1]) + "hello", TypeError, ["hello"]),  # type: ignore[arg-type]
  ("backward of no scalar", lambda: Tensor.ones(3, requires_grad=True).backward(), (RuntimeError, ValueError), ["3"]),
  ("assign of another shape", lambda: Tensor.zeros(3).contiguous().assign(Tensor.ones(4)), ValueError, ["3", "4"]),
  ("reading what was never written", lambda: unwritten().tolist(), RuntimeError, ["never", "float32"]),
  ("computing with what was never written", lambda: (unwritten() + 1).tolist(), RuntimeError, ["float32"]),
  ("reading a freed buffer", freed, RuntimeError, ["freed"]),
  ("jit of nothing", jit_of_nothing, RuntimeError, ["no kernel"]),
]


@pytest.mark.parametrize(("act", "kind", "named"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_bad_input(act: Callable[[], object], kind: type[BaseException], named: list[str]) -> None:
  with pytest.raises(kind) as caught:
    act()
  text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
  for value in named:
    assert value in text, f"the message does not name {value}: {text}"
