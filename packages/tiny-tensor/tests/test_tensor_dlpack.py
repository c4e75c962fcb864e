"""DLPack: memory that tensors and NumPy arrays share, what keeps it alive, and what is refused."""

from __future__ import annotations

import ctypes
import gc
import random
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tiny_runtime import Device
from tiny_tensor import Context, Tensor, TinyJit, dtypes
from tiny_tensor.interop import dlpack
from tiny_tensor.strides import strides_of


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield
  gc.collect()
  assert not dlpack._exported, "structs whose deleter was never called"


class Producer:
  """An array with DLPack of our making."""

  def __init__(self, layout: dlpack.Layout, owner: object = None, versioned: bool = True, device: int = 1) -> None:
    self.layout, self.owner, self.versioned, self.device = layout, owner, versioned, device

  def __dlpack_device__(self) -> tuple[int, int]:
    return (self.device, 0)

  def __dlpack__(self, *, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> object:
    return dlpack.make_capsule(self.layout, self.owner, self.versioned)


class OldProducer(Producer):
  """One from before DLPack 1.0."""

  def __dlpack__(self) -> object:  # type: ignore[override]
    return dlpack.make_capsule(self.layout, self.owner, False)


class Owned(np.ndarray[Any, Any]):
  """An array that can be referred to weakly."""


def numbers(*shape: int, dtype: str = "float32") -> Any:
  return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


# *** from tensors ***


@pytest.mark.parametrize("dtype", [d for d in dtypes.all if d.name in dir(np) or d is dtypes.bool])
def test_numpy_sees_the_memory_of_a_tensor(dtype: Any) -> None:
  t = Tensor([[0, 1], [1, 0]], dtype=dtype)
  a = np.from_dlpack(t)
  assert a.dtype.name == dtype.name and a.shape == (2, 2) and a.tolist() == t.tolist()
  a[0, 0] = 1
  assert t.tolist() == [[1, 1], [1, 0]] and (t.int() + 1).tolist() == [[2, 2], [2, 1]]
  t[1, 1] = True if dtype is dtypes.bool else 3
  t.realize()
  assert a[1, 1] == t[1, 1].item()


def test_what_is_computed_later_sees_what_was_written() -> None:
  t = Tensor([1.0, 2.0]).realize()
  before, after = (t * 2).realize(), t * 2
  np.from_dlpack(t)[0] = 5
  assert before.tolist() == [2, 4] and after.tolist() == [10, 4]


def test_equal_tensors_are_not_written_to() -> None:
  z, same, sum_ = Tensor.zeros(3), Tensor.zeros(3), Tensor.zeros(3) + 1
  a, b = (Tensor([1.0, 2.0]) * 2 for _ in range(2))
  a.realize(b)
  for t in (z, a):
    np.from_dlpack(t)[0] = 7
  assert z.tolist() == [7, 0, 0] and same.tolist() == [0, 0, 0] and sum_.tolist() == [1, 1, 1]
  assert a.tolist() == [7, 4] and b.tolist() == [2, 4]


def test_views_are_exported_with_strides() -> None:
  t = Tensor(numbers(3, 4)).realize()
  whole = np.from_dlpack(t)
  for view in (t.T, t[1:], t[:, ::2], t[::3], t[1], t[:, 1:3].T, t.reshape(2, 6)):
    a = np.from_dlpack(view)
    assert np.shares_memory(a, whole) and a.tolist() == view.tolist()
  np.from_dlpack(t[::2, ::3])[1, 0] = 50
  assert t[2, 0].item() == 50


def test_strides_of_any_view() -> None:
  choose = random.Random(0)
  base = numbers(3, 4, 5, dtype="int32")
  start = Tensor(base).realize()
  for _ in range(150):
    t, a = start, base
    for _ in range(choose.randint(1, 5)):
      kind = choose.randrange(4)
      if kind == 0:
        order = choose.sample(range(a.ndim), a.ndim)
        t, a = t.permute(*order), a.transpose(order)
      elif kind == 1:
        key = tuple(slice(choose.choice([None, 0, 1, -1]), None, choose.choice([1, 2, 3, -1, -2])) for _ in a.shape)
        if 0 not in a[key].shape:
          t, a = t[key], a[key]
      elif kind == 2 and a.ndim > 1:
        t, a = t[-1], a[-1]
      else:
        rows = choose.choice([d for d in range(1, a.size + 1) if a.size % d == 0])
        t, a = t.reshape(rows, -1), a.reshape(rows, -1)
    found = strides_of(t.uop)
    assert (found is not None) == np.shares_memory(a, base), "where NumPy has a view, there are strides"
    if found is not None:
      flat = base.flatten()[found[1] :]
      assert np.lib.stride_tricks.as_strided(flat, a.shape, [4 * s for s in found[2]]).tolist() == a.tolist()


def test_copies_where_strides_cannot_tell() -> None:
  t = Tensor([1.0, 2.0]).realize()
  for view in (t.unsqueeze(0).expand(3, 2), t.reshape(1, 2).expand(2, 2).T.flatten(), t[::-1]):
    assert np.from_dlpack(view).tolist() == view.tolist()
    with pytest.raises(BufferError, match="only a copy"):
      view.__dlpack__(copy=False)
  copy = np.from_dlpack(t, copy=True) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else t.numpy()
  copy[0] = 9
  assert t.tolist() == [1, 2]


def test_empty_and_scalar() -> None:
  assert np.from_dlpack(Tensor.zeros(0, 3)).shape == (0, 3)
  t = Tensor(2.5)
  a = np.from_dlpack(t)
  a[...] = 4
  assert a.shape == () and t.item() == 4


def test_memory_outlives_the_tensor() -> None:
  arrays = [np.from_dlpack(Tensor([float(i)] * 1000) + 1) for i in range(20)]
  del_me = Tensor([1.0]).realize()
  del del_me
  gc.collect()
  junk = [Tensor([-1.0] * 1000).realize() for _ in range(20)]
  assert [a[999] for a in arrays] == [i + 1.0 for i in range(20)] and len(junk) == 20


def test_capsules() -> None:
  t = Tensor([1.0]).realize()
  capsule = t.__dlpack__(max_version=(1, 0))
  assert dlpack.is_capsule(id(capsule), b"dltensor_versioned") and len(dlpack._exported) == 1
  old = t.__dlpack__()
  assert dlpack.is_capsule(id(old), b"dltensor") and t.__dlpack_device__() == (1, 0)
  layout, taken = dlpack.open_capsule(capsule)
  assert dlpack.is_capsule(id(capsule), b"used_dltensor_versioned") and not layout.read_only and not layout.is_copied
  with pytest.raises(TypeError, match="nobody has used"):
    dlpack.open_capsule(capsule)
  del capsule, old  # the used one leaves its struct to who took it, the other one frees it
  assert len(dlpack._exported) == 1
  del taken
  assert not dlpack._exported
  layout, taken = dlpack.open_capsule(t.__dlpack__(copy=True, max_version=(1, 1)))
  assert layout.is_copied
  with pytest.raises(ValueError, match="stream=3"):
    t.__dlpack__(stream=3)  # type: ignore[arg-type]
  with pytest.raises(BufferError, match=r"\(2, 0\)"):
    t.__dlpack__(dl_device=(2, 0))


def test_files_are_read_only(tmp_path: Any) -> None:
  (tmp_path / "bytes").write_bytes(bytes(range(8)))
  t = Tensor(tmp_path / "bytes")
  layout, taken = dlpack.open_capsule(t.__dlpack__(max_version=(1, 0)))
  assert layout.read_only and ctypes.string_at(layout.address, 8) == bytes(range(8))
  layout, taken = dlpack.open_capsule(t[2:4].__dlpack__())
  assert not layout.read_only and ctypes.string_at(layout.address, 2) == b"\2\3", "old capsules have a copy"
  del taken


def test_tensors_that_require_a_gradient_are_refused() -> None:
  t = Tensor([1.0], requires_grad=True)
  for x in (t, t * 2):
    with pytest.raises(BufferError, match="detach"):
      x.__dlpack__()
    assert np.from_dlpack(x.detach()).tolist() == x.tolist()


def test_not_while_a_jit_captures() -> None:
  @TinyJit
  def step(x: Tensor) -> Tensor:
    np.from_dlpack(x + 1)
    return (x + 2).realize()

  step(Tensor([1.0]).realize())
  with pytest.raises(RuntimeError, match="sharing the memory of a Tensor"):
    step(Tensor([1.0]).realize())


# *** to tensors ***


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_tensor_over_an_array(order: tuple[int, ...], backwards: bool) -> None:
  base = numbers(2, 3, 4)
  a = base.transpose(order)
  a = a[:, ::-1] if backwards else a
  t = Tensor.from_dlpack(a, copy=False)
  assert t.tolist() == a.tolist() and t.device == "REF"
  a[0, 0, 0] = 99
  assert (t + 1).tolist() == (a + 1).tolist()
  t[1, 1, 1] = -1.0
  t.realize()
  assert a[1, 1, 1] == -1
  assert np.shares_memory(np.from_dlpack(t.flip(1) if backwards else t), base)


def test_the_array_lives_as_long_as_the_tensor() -> None:
  a = numbers(4).view(Owned)
  gone = weakref.ref(a)
  t = Tensor.from_dlpack(a)
  view = t[1:]
  del a, t
  gc.collect()
  assert gone() is not None and view.tolist() == [1, 2, 3]
  del view
  gc.collect()
  assert gone() is None


def test_the_deleter_is_called_once() -> None:
  memory = np.zeros(3, "int32")
  for versioned in (True, False):
    for kind in (Producer, OldProducer):
      owner = memory.view(Owned)
      gone = weakref.ref(owner)
      t = Tensor.from_dlpack(kind(dlpack.Layout(memory.ctypes.data, dtypes.int32, (3,), (1,)), owner, versioned))
      del owner
      assert gone() is not None and t.tolist() == [0, 0, 0] and len(dlpack._exported) == 1
      del t
      gc.collect()
      assert gone() is None and not dlpack._exported


def test_what_cannot_be_shared_is_copied() -> None:
  a = numbers(4, 6)
  fixed = a[1:].copy()
  fixed.flags.writeable = False
  raw = np.zeros(17, "uint8")
  layout = dlpack.Layout(raw[1:].ctypes.data, dtypes.float32, (4,), (1,))
  for x, why in ((a[:, ::2], "gaps"), (a[::-2, 1:4], "gaps"), (fixed, "read-only"), (Producer(layout), "aligned")):
    t = Tensor.from_dlpack(x)
    expected = np.zeros(4) if isinstance(x, Producer) else x
    np.testing.assert_array_equal(t.numpy(), expected)
    with pytest.raises(BufferError, match=why):
      Tensor.from_dlpack(x, copy=False)
  t = Tensor.from_dlpack(a, copy=True)
  a[0, 0] = 44
  assert t[0, 0].item() == 0


def test_a_device_that_cannot_work_on_memory_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
  opened = Device.opened("REF")
  monkeypatch.setattr(opened, "capabilities", replace(opened.capabilities, host_import=False, host_mapped=False))
  a = numbers(3)
  t = Tensor.from_dlpack(a)
  assert t.tolist() == [0, 1, 2] and t.__dlpack_device__() == (12, 0)
  with pytest.raises(BufferError, match="REF cannot work on memory of the host"):
    Tensor.from_dlpack(a, copy=False)
  with pytest.raises(BufferError, match=r"cannot address memory of REF.*\.to"):
    t.__dlpack__()
  on_host = dlpack.open_capsule(t.__dlpack__(dl_device=(1, 0)))[0]
  assert on_host.shape == (3,)
  with pytest.raises(BufferError, match="only copied"):
    t.__dlpack__(dl_device=(1, 0), copy=False)


def test_a_tensor_from_a_tensor() -> None:
  t = Tensor([1.0, 2.0]).realize()
  same, copy = Tensor.from_dlpack(t), Tensor.from_dlpack(t, copy=True)
  t[0] = 5.0
  assert same.tolist() == [5, 2] and copy.tolist() == [1, 2]
  with pytest.raises(BufferError, match="HOST.*without a copy"):
    Tensor.from_dlpack(t, device="HOST", copy=False)


def test_inside_of_a_jit_memory_is_copied() -> None:
  a = numbers(3)

  @TinyJit
  def step(x: Tensor) -> Tensor:
    return (x + Tensor.from_dlpack(a)).realize()

  assert [step(Tensor([float(i)] * 3).realize()).tolist() for i in range(4)] == [[i, i + 1, i + 2] for i in range(4)]


def test_what_is_no_dlpack() -> None:
  layout = dlpack.Layout(np.zeros(4).ctypes.data, dtypes.float32, (2,), (1,))
  with pytest.raises(TypeError, match="__dlpack__.*list"):
    Tensor.from_dlpack([1])
  with pytest.raises(BufferError, match=r"complex|\(5, 64\)"):
    Tensor.from_dlpack(np.zeros(2, np.complex64))
  with pytest.raises(BufferError, match="type 2.*only copied"):
    Tensor.from_dlpack(Producer(layout, device=2), copy=False)
  with pytest.raises(BufferError, match="type 2.*copy it there"):
    Tensor.from_dlpack(OldProducer(layout, device=2))
  capsule = dlpack.make_capsule(layout, None, True)
  struct: Any = dlpack.DLManagedTensorVersioned.from_address(dlpack.capsule_pointer(id(capsule), b"dltensor_versioned"))
  struct.major = 9
  with pytest.raises(BufferError, match=r"DLPack 9\.1"):
    dlpack.open_capsule(capsule)
  struct = None
