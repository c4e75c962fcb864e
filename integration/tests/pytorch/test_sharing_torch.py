"""Memory in common with PyTorch, both ways, on the CPU device."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from tiny_tensor import Tensor, dtypes, nn
from tiny_tensor.interop import dlpack

torch: Any = pytest.importorskip("torch")  # only in the environment `oracle`


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_dtype_goes_there_and_back(dtype: Any) -> None:
  t = Tensor([[1, 0, 1], [0, 1, 1]], dtype=dtype)
  x = torch.from_dlpack(t)
  assert str(x.dtype).removeprefix("torch.") in (
    dtype.name,
    *{"fp8e4m3": ["float8_e4m3fn"], "fp8e5m2": ["float8_e5m2"]}.get(dtype.name, []),
  )
  back = Tensor.from_dlpack(x, copy=False)
  assert back.dtype is dtype and back.tolist() == t.tolist()
  x.view(torch.uint8)[0, : dtype.itemsize] = 0
  assert t[0, 0].item() == back[0, 0].item() == 0


def test_both_see_what_either_writes() -> None:
  t = (Tensor([1.0, 2.0, 3.0, 4.0]) * 2).realize()
  x = torch.from_dlpack(t.reshape(2, 2).T)
  assert x.stride() == (1, 2)
  x[1, 0] = 50
  assert t.tolist() == [2, 50, 6, 8] and (t + 1).tolist() == [3, 51, 7, 9]
  t[3] = -1.0
  t.realize()
  assert x.tolist() == [[2, 6], [50, -1]]
  y = torch.arange(6.0).reshape(2, 3).T
  u = Tensor.from_dlpack(y, copy=False)
  y += 1
  assert (u * 2).tolist() == (y * 2).tolist()
  u.assign(u + 10).realize()
  assert y.tolist() == [[11, 14], [12, 15], [13, 16]]


def test_weights_of_ours_are_trained_by_theirs() -> None:
  t = Tensor([[1.0, -2.0], [0.5, 3.0]]).realize()
  weight = torch.nn.Parameter(torch.from_dlpack(t))
  data = torch.tensor([[1.0, 2.0]])
  (data @ weight).sum().backward()
  with torch.no_grad():
    weight -= 0.1 * weight.grad
  assert (
    t.tolist()
    == weight.tolist()
    == [[pytest.approx(0.9), pytest.approx(-2.1)], [pytest.approx(0.3), pytest.approx(2.8)]]
  )


def test_memory_lives_as_long_as_anyone_has_it() -> None:
  x = torch.from_dlpack(Tensor([3.0] * 100_000) + 1)
  owner = torch.full((100_000,), 5.0)
  gone = weakref.ref(owner)
  t = Tensor.from_dlpack(owner)[1:]
  del owner
  gc.collect()
  junk = [torch.zeros(100_000) for _ in range(5)] + [Tensor.zeros(100_000).contiguous().realize() for _ in range(5)]
  assert float(x.sum()) == 400_000 and t.sum().item() == 5 * 99_999 and len(junk) == 10
  del t
  gc.collect()
  assert gone() is None
  del x
  assert not dlpack._exported


def test_views_of_theirs() -> None:
  x = torch.arange(12.0).reshape(3, 4)
  for view in (x.T, x[1:], x[:, 1:3], x[::2], x.expand(2, 3, 4), x[0, 0], x[:0]):
    assert Tensor.from_dlpack(view).tolist() == view.tolist()
  assert torch.from_dlpack(Tensor([1.0, 2.0, 3.0])[::-1]).tolist() == [3, 2, 1]


def test_refused() -> None:
  with pytest.raises(BufferError, match="gradient"):
    Tensor.from_dlpack(torch.zeros(2, requires_grad=True))
  with pytest.raises(BufferError, match="detach"):
    torch.from_dlpack(Tensor([1.0], requires_grad=True))
  with pytest.raises(BufferError, match=r"\(5, 64\)"):
    Tensor.from_dlpack(torch.zeros(2, dtype=torch.complex64))
  with pytest.raises(BufferError, match="gaps"):
    Tensor.from_dlpack(torch.zeros(2, 4)[:, ::2], copy=False)


def test_from_several_threads() -> None:
  sums: list[float] = []

  def work() -> None:
    for _ in range(50):
      sums.append(float(torch.from_dlpack(Tensor.full((10,), 3.0).contiguous()).sum()))

  threads = [threading.Thread(target=work) for _ in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  gc.collect()
  assert sums == [30.0] * 150 and not dlpack._exported


def test_data_of_torch() -> None:
  for x in (
    torch.arange(6.0).reshape(2, 3).T,
    torch.ones(2, requires_grad=True) * 2,
    torch.tensor(3),
    torch.zeros(0, 2),
  ):
    made = Tensor(x)
    assert made.tolist() == x.tolist() and made.shape == tuple(x.shape) and str(made.dtype) == str(x.dtype)[6:]
  half = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
  assert Tensor(half).dtype.name == "bfloat16" and Tensor([half, half], dtype="float32").tolist() == [[1.5, -2]] * 2
  source = torch.ones(2)
  copied = Tensor(source)
  source += 1
  assert copied.tolist() == [1, 1]
  layer = nn.Linear(2, 3)
  theirs = torch.nn.Linear(2, 3)
  layer.load_state_dict(theirs.state_dict())
  np.testing.assert_array_equal(layer.weight.numpy(), theirs.weight.detach().numpy())
