"""Tensors on several devices: making, moving, reading, writing, and what other parts of the package do with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tiny_tensor import Context, Tensor, dtypes, nn
from tiny_tensor.func import checkpoint, grad, jvp, vmap
from tiny_uop import Ops, Sharding, UOp

ONE = "REF"
TWO, THREE = (ONE, f"{ONE}:1"), (ONE, f"{ONE}:1", f"{ONE}:2")


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def rows(shape: tuple[int, ...] = (6, 4), devices: tuple[str, ...] = TWO, axis: int | None = 0) -> Tensor:
  return Tensor(values(shape)).shard(devices, axis)


def values(shape: tuple[int, ...] = (6, 4)) -> np.ndarray:
  return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def layout(t: Tensor) -> tuple[int | None, tuple[int, ...]]:
  found = t.uop.sharding
  assert found is not None
  return found.axis, found.bounds


# *** making and moving ***


def test_devices_and_pieces() -> None:
  x = rows((10, 2), (f"{ONE}:0".lower(), *THREE[1:]))
  assert x.device == THREE and layout(x) == (0, (0, 4, 7, 10)) and x.shape == (10, 2)
  assert repr(x) == f"<Tensor (10, 2) float32 on {', '.join(THREE)} (in pieces of axis 0), lazy MULTI>"
  assert repr(x.realize()).endswith("(in pieces of axis 0), realized>")
  assert [piece.base.op for piece in x.uop.src] == [Ops.BUFFER] * 3 and [p.shape for p in x.uop.src] == [
    (4, 2), (3, 2), (3, 2)]  # fmt: skip
  copied = Tensor([1, 2]).shard(TWO)
  assert copied.device == TWO and layout(copied) == (None, ()) and "(each all of it)" in repr(copied)
  assert copied.tolist() == [1, 2] and x.shard(TWO[:1]).device == ONE and x.shard(THREE, axis=-1 - 1).device == THREE


def test_moving_again() -> None:
  x, expected = rows().realize(), values().tolist()
  assert x.to(TWO) is x and x.to(ONE).device == ONE and x.to(ONE).tolist() == expected
  for moved in (x.to(TWO[1]), x.shard(TWO, 1), x.shard(TWO), x.shard(THREE, 0), x.to(THREE), x.to("HOST").to(None)):
    assert moved.tolist() == expected
  back = x.shard(TWO[::-1], 0)
  assert back.device == TWO[::-1] and back.tolist() == expected
  t = Tensor(values(), requires_grad=True)
  (t * t).sum().backward()
  assert t.shard_(TWO, 1) is t and t.device == TWO and t.grad is not None and layout(t.grad) == layout(t)
  assert t.to_(ONE).device == ONE and t.grad.device == ONE and t.grad.tolist() == (values() * 2).tolist()


@pytest.mark.parametrize("axis", [0, 1])
def test_each_device_is_sent_its_piece_only(axis: int) -> None:
  t = Tensor(values((8, 6))).realize()
  calls = t.shard(TWO, axis).schedule_linear().src
  copies = [call.src[1] for call in calls if call.src[0].op is Ops.COPY and call.src[1].device != call.src[2].device]
  assert [(c.device, c.arg[1]) for c in copies] == [(TWO[1], 24)]
  assert t.shard(THREE, axis).tolist() == values((8, 6)).tolist()


def test_like_another() -> None:
  x, narrow = rows((6, 4), TWO, 1), Tensor(values((3, 2)))
  assert layout(narrow.shard_like(x)) == (1, (0, 1, 2)) and narrow.shard_like(Tensor([1.0])).device == ONE
  assert layout(Tensor(values()).shard_like(x[:, :3])) == (1, (0, 2, 4))
  assert layout(Tensor(values((6, 3))).shard_like(x[:, 1:])) == (1, (0, 1, 3))  # the very same pieces
  with pytest.raises(ValueError, match=r"shape \(2,\) cannot have pieces like a tensor of shape \(6, 4\)"):
    Tensor([1, 2]).shard_like(x)


def test_what_cannot_be_sharded() -> None:
  with pytest.raises(ValueError, match=r"axis 1 of shape \(6, 2\) is shorter than the 3 devices"):
    rows((6, 2), THREE, 1)
  with pytest.raises(IndexError, match="axis 2 of a tensor of 2 axes"):
    rows(axis=2)
  for names in list[tuple[str, ...]]([(), (ONE, ONE), (ONE, f"{ONE}:0")]):
    with pytest.raises(ValueError, match="a tensor needs a device, or several different ones"):
      Tensor([1, 2]).shard(names, 0)
  n = UOp.variable("n", 1, 4).bind(3)
  with pytest.raises(ValueError, match="has a symbolic size"):
    Tensor(values((4,)))[:n].shard(TWO, 0)


def test_making_tensors_there() -> None:
  made = [Tensor([1.0, 2.0], device=TWO), Tensor.ones(2, 3, device=TWO), Tensor.arange(5, device=TWO)]
  drawn = [Tensor.rand(3, device=TWO), Tensor.randn(4, device=TWO), Tensor.randint(5, device=TWO)]
  for t in (*made, *drawn, Tensor.eye(3, device=TWO), Tensor(2.5, device=TWO)):
    assert t.device == TWO and layout(t) == (None, ()) and t.to(ONE).tolist() == t.to(TWO[1]).tolist()
  empty = Tensor.empty(3, device=TWO).assign(Tensor.ones(3, device=TWO))
  assert empty.tolist() == [1, 1, 1]
  Tensor.manual_seed(3)
  expected = Tensor.rand(6, 4).tolist()
  Tensor.manual_seed(3)
  x = rows()
  again = x.rand_like()
  assert layout(again) == layout(x) and again.tolist() == expected  # the numbers do not depend on the devices
  for t in (x.zeros_like(), x.ones_like(dtype=dtypes.int32), x.full_like(7), x.randn_like(), x.empty_like().assign(x)):
    assert layout(t) == layout(x) and np.isfinite(t.numpy()).all()
  assert x.zeros_like(device=ONE).device == ONE and rows(axis=None).zeros_like().device == TWO
  assert rows().const_like(2).tolist() == [[2.0] * 4] * 6


def test_constants_go_where_the_others_are() -> None:
  x = rows()
  assert (Tensor(2.0) * x).tolist() == (x * Tensor.full((6, 4), 2.0)).tolist() == (values() * 2).tolist()
  assert Tensor.ones(1, 4).cat(x).tolist() == np.concatenate([np.ones((1, 4)), values()]).tolist()
  assert x[Tensor([1, 2]).shard(TWO)].tolist() == values()[1:3].tolist()


def test_values_elsewhere_are_refused() -> None:
  x, here = rows(), Tensor(values()).realize()
  uses: list[Callable[[], Tensor]] = [
    lambda: x + here,
    lambda: here.cat(x),
    lambda: x[Tensor([1, 2]).realize()],
    lambda: x.assign(here),
  ]
  for use in uses:
    with pytest.raises(ValueError, match=r"different devices .* to several devices with \.shard\(devices\)"):
      use()


# *** reading and writing ***


def test_reading() -> None:
  x = rows((3, 2), TWO, 1)
  assert x.numpy().tolist() == x.tolist() == values((3, 2)).tolist() and x[1, 1].item() == 3.0
  assert np.asarray(x).shape == (3, 2) and bytes(x.data()) == values((3, 2)).tobytes() and len(x) == 3
  lazy = rows((4, 4)) + 1
  lazy.tolist()
  assert lazy.uop.op is Ops.MULTI and "realized" in repr(lazy)  # what was computed is kept in its pieces
  assert Tensor(np.zeros((0, 4), np.float32)).shard(TWO, 1).tolist() == []


def test_writing_in_place() -> None:
  x, expected = rows().realize(), values()
  view, turned, pieces = x[1:5], x.T, x.uop
  x[0] = 100.0
  x[2:4, 1] = -1.0
  x[4:] = Tensor(np.ones((2, 4), np.float32)).shard(TWO, 1)
  x[::2, 3] += 2.0
  expected[0], expected[2:4, 1], expected[4:] = 100.0, -1.0, 1.0
  expected[::2, 3] += 2.0
  assert x.tolist() == expected.tolist() and view.tolist() == expected[1:5].tolist()
  assert turned.tolist() == expected.T.tolist() and x.uop is pieces  # the same buffers
  x[Tensor([1, 5]).shard(TWO)] = 9.0
  expected[[1, 5]] = 9.0
  later = x * 2
  x.assign(x + 1)
  assert x.tolist() == (expected + 1).tolist() and later.tolist() == (expected * 2).tolist()
  x += rows()
  assert x.tolist() == (expected + 1 + values()).tolist()
  flags = Tensor([True, False, True, True]).shard(TWO, 0)
  flags[3:] = False
  assert flags.tolist() == [True, False, True, False]


def test_copies_are_independent() -> None:
  x = rows().realize()
  for twin in (x.clone(), copy.deepcopy(x), rows()):
    twin[0] = -1.0
    assert twin.realize().device == TWO and twin[0, 0].item() == -1.0 and x.tolist() == values().tolist()


# *** other parts of the package ***


def test_files(tmp_path: Path) -> None:
  layer = nn.Linear(4, 6)
  whole = {name: t.numpy() for name, t in nn.state.get_state_dict(layer).items()}
  layer.weight.shard_(TWO, 0)
  assert layer.bias is not None
  layer.bias.shard_(TWO)
  path = tmp_path / "layer.safetensors"
  nn.state.safe_save(nn.state.get_state_dict(layer), str(path))
  loaded = nn.state.safe_load(str(path))
  assert {name: t.numpy().tolist() for name, t in loaded.items()} == {k: v.tolist() for k, v in whole.items()}
  other = nn.Linear(4, 6)
  other.weight.shard_(TWO, 1)
  nn.state.load_state_dict(other, loaded, verbose=False)
  assert layout(other.weight) == (1, (0, 2, 4)) and other.weight.tolist() == whole["weight"].tolist()


def test_sharing_memory_is_refused() -> None:
  exports: list[Callable[[], object]] = [lambda: np.from_dlpack(rows()), lambda: rows().__dlpack_device__()]
  for export in exports:
    with pytest.raises(BufferError, match=r"has no memory that could be shared: put it together with \.to\('"):
      export()


def test_custom_kernels_are_refused() -> None:
  with pytest.raises(ValueError, match="a custom kernel runs on one device, its tensors are on"):
    rows().custom_kernel(rows(), fxn=lambda out, x: out)


def test_transforms() -> None:
  def f(x: Tensor) -> Tensor:
    return (x.sin() * x).sum()

  x, whole = rows() * 0.1, Tensor(values()) * 0.1
  np.testing.assert_allclose(grad(f)(x).numpy(), grad(f)(whole).numpy(), rtol=1e-5)
  np.testing.assert_allclose(grad(checkpoint(f))(x).numpy(), grad(f)(whole).numpy(), rtol=1e-5)
  each = vmap(lambda row: row.softmax() * row.sum())(x)
  np.testing.assert_allclose(each.numpy(), vmap(lambda row: row.softmax() * row.sum())(whole).numpy(), rtol=1e-5)
  assert each.device == TWO
  made, moved = jvp(f, (x,), (x.ones_like(),)), jvp(f, (whole,), (whole.ones_like(),))
  np.testing.assert_allclose([t.item() for t in made], [t.item() for t in moved], rtol=1e-5)


def test_gradients_lie_where_the_tensors_do() -> None:
  w, x = rows((4, 6), TWO, 1).requires_grad_(), rows((8, 4), TWO, 0)
  ((x @ w).relu() ** 2).sum().backward()
  u, v = Tensor(values((4, 6)), requires_grad=True), Tensor(values((8, 4)))
  ((v @ u).relu() ** 2).sum().backward()
  assert w.grad is not None and u.grad is not None and layout(w.grad) == layout(w)
  np.testing.assert_allclose(w.grad.numpy(), u.grad.numpy(), rtol=1e-6)
  # through shard and to, which are operations as others are
  t = Tensor(values(), requires_grad=True)
  (t.shard(TWO, 0).to(ONE) * t.shard(THREE, 1).exp2().shard(TWO).to(ONE)).sum().backward()
  s = Tensor(values(), requires_grad=True)
  (s * s.exp2()).sum().backward()
  assert t.grad is not None and s.grad is not None and t.grad.device == ONE
  np.testing.assert_allclose(t.grad.numpy(), s.grad.numpy(), rtol=1e-5)


def test_dropout_draws_what_one_device_draws() -> None:
  with Tensor.train():
    Tensor.manual_seed(1)
    expected = Tensor.ones(8, 6).dropout(0.5).tolist()
    Tensor.manual_seed(1)
    x = Tensor.ones(8, 6).contiguous().shard(TWO, 0).dropout(0.5)
  assert layout(x) == (0, (0, 4, 8)) and x.tolist() == expected


def test_layers() -> None:
  Tensor.manual_seed(0)
  table, norm, conv = nn.Embedding(10, 4), nn.LayerNorm(4), nn.Conv2d(2, 4, 3, padding=1)
  words, images = Tensor([[1, 9, 3], [0, 5, 7]]), Tensor(values((4, 2, 5, 5)))
  expected = norm(table(words)).numpy(), conv(images).max_pool2d().numpy()
  for t in nn.state.get_parameters([table, norm, conv]):
    t.shard_(TWO)
  for axis in (None, 0, 1):
    table.weight.shard_(TWO, axis)
    np.testing.assert_allclose(norm(table(words.shard(TWO, 0))).numpy(), expected[0], rtol=1e-4, atol=1e-5)
  for weight_axis, image_axis in ((None, 0), (0, None), (1, 1)):
    conv.weight.shard_(TWO, weight_axis)
    y = conv(images.shard(TWO, image_axis)).max_pool2d()
    np.testing.assert_allclose(y.numpy(), expected[1], rtol=1e-4, atol=1e-4)


def test_pieces_as_they_are_laid_out() -> None:
  x = rows((6, 4))
  s = x.uop.sharding
  assert s == Sharding.of(TWO, 0, (0, 3, 6)) and (x + 1).reshape(2, 12).uop.sharding == Sharding.of(TWO, 0, (0, 1, 2))
