"""Kernels written by hand, as part of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tiny_runtime import CompileError
from tiny_tensor import Context, Tensor, TinyJit, TransformError, jvp, vmap
from tiny_tensor.autograd.forward import push_forward
from tiny_tensor.custom_kernel import Memory
from tiny_tensor.func import NativeCode, grad, hessian
from tiny_tensor.live import tensors_above
from tiny_uop import AddrSpace, AxisType, KernelInfo, Ops, UOp, dtypes, is_kernel, print_uop


@pytest.fixture(autouse=True)
def _on_the_reference_device() -> Iterator[None]:
  with Context(DEVICE="REF"):
    yield


def product(out: Memory, a: Memory, b: Memory) -> UOp:
  i = UOp.range(out.size, 0)
  return out.flat(i).store(a.flat(i).load() * b.flat(i).load()).end(i)


def product_gradient(gradient: Tensor, out: Tensor, a: Tensor, b: Tensor) -> tuple[None, Tensor, Tensor]:
  return None, gradient * b, gradient * a


def times(a: Tensor, b: Tensor) -> Tensor:
  return Tensor.empty(*a.shape, dtype=a.dtype).custom_kernel(a, b, fxn=product, grad_fxn=product_gradient)[0]


def normalised(out: Memory, scale: Memory, x: Memory) -> UOp:
  """Rows divided by their root of the mean square, which is a result, too."""
  rows, columns = x.shape
  r, k, c = UOp.range(rows, 0), UOp.range(columns, 1, AxisType.REDUCE), UOp.range(columns, 2)
  square = x[r, k].load() * x[r, k].load()
  root = (square.reduce(Ops.ADD, k) * (1 / columns) + 1e-6).sqrt()
  return UOp.group(scale[r].store(root), out[r, c].store(x[r, c].load() / root).end(c)).end(r)


def point(*shape: int, seed: int = 0) -> Tensor:
  return Tensor(np.random.default_rng(seed).standard_normal(shape))


def test_in_the_middle_of_a_graph() -> None:
  a, b = point(3, 4), point(4, 3, seed=1)
  out = times(a.exp(), b.T) + 1
  assert out.uop.op is Ops.ADD
  np.testing.assert_allclose(out.numpy(), np.exp(a.numpy()) * b.numpy().T + 1)
  assert times(a, b.T).uop is times(a, b.T).uop, "equal calls are one node"


def test_several_results_and_the_inputs_come_back() -> None:
  x = point(3, 5)
  out, scale, same = Tensor.custom_kernel(
    Tensor.empty(3, 5, dtype="float64"), Tensor.empty(3, dtype="float64"), x, fxn=normalised
  )
  assert same is x
  linear = (out * scale.unsqueeze(1)).schedule_linear(scale)
  assert [call.src[0].arg.name for call in linear.src].count("normalised") == 1
  out, scale, _ = Tensor.custom_kernel(*(t.empty_like() for t in (out, scale)), x, fxn=normalised)
  root = np.sqrt((x.numpy() ** 2).mean(1) + 1e-6)
  np.testing.assert_allclose(scale.numpy(), root)
  np.testing.assert_allclose(out.numpy(), x.numpy() / root[:, None])


def test_results_may_stand_anywhere() -> None:
  a, b = point(4), point(4, seed=1)
  back = Tensor.custom_kernel(
    a, Tensor.empty(4, dtype="float64"), b, fxn=lambda a, out, b: product(out, a, b),
    grad_fxn=lambda g, a, out, b: (g * b, None, g * a),
  )  # fmt: skip
  np.testing.assert_allclose(back[1].numpy(), a.numpy() * b.numpy())
  assert back[0] is a and back[2] is b
  given = grad(lambda v: Tensor.custom_kernel(
    v, Tensor.empty(4, dtype="float64"), b, fxn=lambda a, out, b: product(out, a, b),
    grad_fxn=lambda g, a, out, b: (g * b, None, g * a))[1].sum())(a)  # fmt: skip
  np.testing.assert_allclose(given.numpy(), b.numpy())


def test_a_result_is_a_new_tensor() -> None:
  a = point(4).realize()
  before = a.numpy().copy()
  doubled = Tensor.custom_kernel(a, a * 1, fxn=lambda out, x: product(out, x, x))[0]
  np.testing.assert_allclose(doubled.numpy(), before**2)
  np.testing.assert_array_equal(a.numpy(), before)
  a.assign(times(a, a))
  np.testing.assert_allclose(a.numpy(), before**2)


def test_derivatives() -> None:
  a, b = point(3), point(3, seed=1)
  x, y = a.numpy(), b.numpy()

  def f(u: Tensor, v: Tensor) -> Tensor:
    return (times(u, v).sin() * u).sum()

  da, db = grad(f, (0, 1))(a, b)
  np.testing.assert_allclose(da.numpy(), np.sin(x * y) + x * y * np.cos(x * y))
  np.testing.assert_allclose(db.numpy(), x * x * np.cos(x * y))
  assert f(a, b).item() == pytest.approx((np.sin(x * y) * x).sum())
  second = hessian(lambda u: f(u, b))(a)
  np.testing.assert_allclose(second.numpy(), np.diag(2 * y * np.cos(x * y) - x * y * y * np.sin(x * y)), atol=1e-12)
  pushed = jvp(f, (a, b), (b, a))[1]
  np.testing.assert_allclose(pushed.item(), (da.numpy() * y + db.numpy() * x).sum())
  a.requires_grad_()
  f(a, b).backward()
  assert a.grad is not None
  np.testing.assert_allclose(a.grad.numpy(), da.numpy())


def test_mapped_over_a_batch() -> None:
  a, b = point(3, 4), point(4, seed=1)
  mapped = vmap(times, (0, None))
  np.testing.assert_allclose(mapped(a, b).numpy(), a.numpy() * b.numpy())
  assert len(mapped(a, b).schedule()) == 1, "one kernel, with a loop more"
  np.testing.assert_allclose(vmap(times, (0, None))(a.T, a[:, 0]).numpy(), a.numpy().T * a.numpy()[:, 0])
  per_sample = vmap(grad(lambda u, v: times(u, v).square().sum(), 1), (0, None))(a, b)
  np.testing.assert_allclose(per_sample.numpy(), 2 * a.numpy() ** 2 * b.numpy())
  x = point(2, 3, 5, seed=2)

  def of_one(v: Tensor) -> Tensor:
    return Tensor.custom_kernel(v.empty_like(), Tensor.empty(3, dtype="float64"), v, fxn=normalised)[0]

  roots = np.sqrt((x.numpy() ** 2).mean(-1, keepdims=True) + 1e-6)
  np.testing.assert_allclose(vmap(of_one)(x).numpy(), x.numpy() / roots)


def test_in_a_jit() -> None:
  w = point(4, seed=9).realize()

  @TinyJit
  def step(x: Tensor) -> Tensor:
    return (times(x * 2, w) + 1).realize()

  for n in range(4):
    x = point(4, seed=n)
    np.testing.assert_allclose(step(x).numpy(), 2 * x.numpy() * w.numpy() + 1)


def sums(out: Memory, x: Memory) -> UOp:
  """Sums of all elements before each, by memory that the kernel keeps for itself."""
  total = UOp.alloc(0, dtypes.float64.ptr(1, AddrSpace.REG))
  i = UOp.range(x.size, 0)
  start = total.index(0).store(0.0)
  kept = total.after(start, i)
  new = kept.index(0).load() + x.flat(i).load()
  add = kept.index(0).store(new)
  return out.flat(i).store(total.after(add).index(0).load()).end(i)


def turned(out: Memory, x: Memory) -> UOp:
  """Groups of four turned around by the threads of a workgroup, through memory that they share, after a first one that
  leaves something there.
  """
  g, t = UOp.range(x.size // 4, 0, AxisType.GLOBAL), UOp.range(4, 1, AxisType.LOCAL)
  near = UOp.alloc(0, dtypes.float64.ptr(4, AddrSpace.LOCAL))
  written = near.index(t).store(x.flat(g * 4 + t).load())
  return out.flat(g * 4 + t).store(near.after(written.barrier()).index(t * -1 + 3).load()).end(g, t)


def of_one(fxn: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
  return lambda x: Tensor.custom_kernel(x.empty_like(), x, fxn=fxn)[0]


def test_near_memory_and_several_stages() -> None:
  x = np.random.default_rng(0).standard_normal((3, 2, 4))
  t = Tensor(x)
  np.testing.assert_allclose(of_one(sums)(t).numpy().reshape(-1), np.cumsum(x))
  np.testing.assert_allclose(vmap(of_one(sums))(t[:, 0]).numpy(), np.cumsum(x[:, 0], 1))
  assert len(vmap(of_one(sums))(t[:, 0].contiguous().realize()).schedule()) == 1, "one kernel, with a loop more"
  np.testing.assert_allclose(vmap(vmap(of_one(sums)))(t).numpy(), np.cumsum(x, 2))
  np.testing.assert_allclose(
    vmap(lambda a: of_one(sums)(t[0, 0]) * a)(t[:, 0, 0]).numpy()[1], np.cumsum(x[0, 0]) * x[1, 0, 0]
  )


def test_threads_and_the_memory_that_they_share() -> None:
  x = point(3, 8)
  expected = x.numpy().reshape(3, 2, 4)[:, :, ::-1].reshape(3, 8)
  np.testing.assert_allclose(of_one(turned)(x[0]).numpy(), expected[0])
  np.testing.assert_allclose(vmap(of_one(turned))(x).numpy(), expected)
  (kernel,) = [u for u in vmap(of_one(turned))(x).uop.toposort if u.op is Ops.SINK and isinstance(u.arg, KernelInfo)]
  assert kernel.src[0].src[1] is UOp.range(3, 2, AxisType.GLOBAL), "each example is a workgroup of its own"

  def counted(out: Memory, x: Memory) -> UOp:
    place = UOp.special(x.size, "gidx0")
    return out.flat(place).store(x.flat(place).load())

  with pytest.raises(TransformError, match="'counted', which counts its threads by SPECIAL"):
    vmap(lambda v: Tensor.custom_kernel(v.empty_like(), v, fxn=counted)[0])(x)


def program(size: int, **more: Any) -> NativeCode:
  """`p1[i] = p0[i] * p0[i]` over so many numbers, in the form that REF takes."""
  out, x = (UOp.param(n, dtypes.float32.ptr(size)) for n in (1, 0))
  i = UOp.range(size, 0)
  kernel = UOp.sink(out.index(i).store(x.index(i).load() * x.index(i).load()).end(i), arg=KernelInfo("squares"))
  return replace(NativeCode("tiny-uop", "python", print_uop(kernel), "squares", (1,), (1,), (1,), 5), **more)


def test_a_program_of_a_device() -> None:
  """Text that the compiler never sees is scheduled, captured and has a gradient as other kernels do."""

  def squares(x: Tensor) -> Tensor:
    return x.custom_kernel(x.empty_like(), fxn=lambda *_: program(5), grad_fxn=lambda g, x, out: (2 * g * x, None))[1]

  x = Tensor(np.arange(5, dtype=np.float32))
  np.testing.assert_array_equal((squares(x + 1) - 1).numpy(), (np.arange(5) + 1) ** 2 - 1)
  np.testing.assert_array_equal(grad(lambda x: squares(x).sum())(x).numpy(), 2 * np.arange(5))
  np.testing.assert_array_equal(squares(x.reshape(5, 1).expand(5, 1)).numpy(), np.arange(5)[:, None] ** 2)
  step = TinyJit(lambda x: squares(x + 1).realize())
  for n in range(4):
    np.testing.assert_array_equal(step((x + n).realize()).numpy(), (np.arange(5) + n + 1) ** 2)
  assert squares(x).uop.src[0] is squares(x).uop.src[0], "equal calls are one node"
  with pytest.raises(TransformError, match="'squares', which counts its threads by SPECIAL or in a program"):
    vmap(squares)(Tensor.empty(2, 5))


def test_programs_that_are_none() -> None:
  class Half:
    entry = "half"

  with pytest.raises(TypeError, match="is no program: it has no form, arch, code, groups, threads, written"):
    bad(lambda *_: Half(), (4,))
  with pytest.raises(ValueError, match="writes argument 2, and was given 2 tensors"):
    bad(lambda *_: program(4, written=(1, 2)), (4,), (4,))
  with pytest.raises(ValueError, match=r"groups are \(0,\), expected one to three numbers above 0"):
    bad(lambda *_: program(4, groups=(0,)), (4,), (4,))
  with pytest.raises(ValueError, match=r"it writes the arguments \(\): expected one at least"):
    bad(lambda *_: program(4, written=()), (4,), (4,))
  with pytest.raises(TypeError, match="field entry is 3, expected str"):
    bad(lambda *_: program(4, entry=3), (4,), (4,))
  x, out = Tensor.empty(4), Tensor.empty(4)
  for wrong in ({"arch": "sm_80"}, {"form": "ptx"}):
    with pytest.raises(CompileError, match="'squares' is .* for (sm_80|python); this device takes tiny-uop"):
      x.custom_kernel(out, fxn=lambda *_: program(4, **wrong))[1].realize()  # noqa: B023
  with pytest.raises(CompileError, match="'squares' is no kernel: .*expected the header"):
    x.custom_kernel(out, fxn=lambda *_: program(4, code="half"))[1].realize()


def bad(fxn: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
  Tensor.custom_kernel(*[Tensor.empty(*s) for s in shapes], fxn=fxn)


def test_kernels_that_are_none() -> None:
  def open_loop(out: Memory) -> UOp:
    return out[UOp.range(4, 0)].store(1.0)

  def wrong_type(out: Memory) -> UOp:
    return out[0].store(UOp.const(dtypes.int32, 1))

  with pytest.raises(ValueError, match="custom kernel 'open_loop' is illegal.*every loop closed"):
    bad(open_loop, (4,))
  with pytest.raises(ValueError, match="'wrong_type'.*a value of its element type"):
    bad(wrong_type, (4,))
  with pytest.raises(TypeError, match="expected effects"):
    bad(lambda out: out[0].load(), (4,))
  with pytest.raises(TypeError, match="gave None"):
    bad(lambda out: None, (4,))
  with pytest.raises(ValueError, match="neither reads nor writes tensor 1 of the 2"):
    bad(lambda out, x: out[0].store(1.0), (4,), (4,))
  with pytest.raises(ValueError, match="uses PARAM 3, and was given 1"):
    bad(lambda out: out[0].store(UOp.param(3, dtypes.float32.ptr(4)).index(0).load()), (4,))
  with pytest.raises(ValueError, match="writes to none"):
    bad(lambda x: UOp.group(), (4,))
  with pytest.raises(ValueError, match="reads tensor 0, which it writes"):
    bad(lambda out: out[0].store(out[1].load()), (4,))
  with pytest.raises(ValueError, match="reads tensor 0, which it writes"):
    bad(lambda out: out[0].accumulate(Ops.ADD, 1.0), (4,))
  with pytest.raises(IndexError, match=r"1 indices for the 2 axes of shape \(2, 2\)"):
    bad(lambda out: out[0].store(1.0), (2, 2))
  with pytest.raises(ValueError, match=r"tensor 0 has shape \(0,\)"):
    bad(lambda out: out[0].store(1.0), (0,))


def test_gradients_that_are_none() -> None:
  x = point(3)

  def f(grad_fxn: Callable[..., Any] | None) -> Callable[[Tensor], Tensor]:
    return lambda v: Tensor.custom_kernel(v.empty_like(), v, v, fxn=product, grad_fxn=grad_fxn)[0].sum()

  with pytest.raises(RuntimeError, match="custom kernel 'product' is wanted, which has none"):
    grad(f(None))(x)
  np.testing.assert_allclose(grad(lambda v: f(None)(v.detach()) * v.sum())(x).numpy(), (x.numpy() ** 2).sum())
  with pytest.raises(RuntimeError, match="'product' is wanted, which has none"):
    jvp(f(None), (x,), (x,))
  bare = next(u for u in f(None)(x).uop.toposort if u.op is Ops.CALL)
  with pytest.raises(TransformError, match="'product' is wanted, which has none"):
    push_forward([bare], {x.uop: x.uop})
  with pytest.raises(ValueError, match="gave 1 gradients for 3 Tensors"):
    grad(f(lambda g, out, a, b: g))(x)
  with pytest.raises(ValueError, match=r"gradient 1.*has shape \(\), expected \(3,\)"):
    grad(f(lambda g, out, a, b: (None, g.sum(), None)))(x)
  np.testing.assert_allclose(grad(f(product_gradient))(x).numpy(), 2 * x.numpy())


def test_a_kernel_with_its_own_information_is_kept() -> None:
  def chosen(out: Memory, a: Memory) -> UOp:
    return UOp.sink(product(out, a, a), arg=KernelInfo("mine", ()))

  linear = Tensor.custom_kernel(Tensor.empty(4), Tensor([1.0, 2.0, 3.0, 4.0]), fxn=chosen)[0].schedule_linear()
  assert linear.src[-1].src[0].arg == KernelInfo("mine", ())


def test_the_graph_shows_it() -> None:
  graph = times(point(2), point(2)).graph()
  (call,) = [u for u in graph.toposort if u.op is Ops.CALL]
  assert call.src[0].arg.name == "product" and Ops.CUSTOM_GRADIENT not in {u.op for u in graph.toposort}


def histogram(bins: Memory, numbers: Memory) -> UOp:
  i, n = UOp.range(bins.size, 0), UOp.range(numbers.size, 1)
  empty = bins.after(bins.flat(i).store(0).end(i))
  place = numbers.flat(n).load().cast(dtypes.index)
  return empty.flat(place, gate=place < bins.size).accumulate(Ops.ADD, 1).end(n)


def test_a_kernel_that_accumulates() -> None:
  def count(numbers: Tensor) -> Tensor:
    return Tensor.empty(4, dtype=dtypes.int32).custom_kernel(numbers, fxn=histogram)[0]

  rows = [[3, 1, 3, 0], [0, 0, 9, 2]]
  assert count(Tensor(rows[0])).tolist() == [1, 1, 0, 2]
  assert vmap(count)(Tensor(rows)).tolist() == [[1, 1, 0, 2], [2, 0, 1, 0]]


def test_an_input_that_is_a_constant_once_it_is_simplified() -> None:
  x = Tensor.eye(1).reshape(1).pad(((0, 2),))
  assert times(Tensor([1.0, 2.0, 3.0]), x).tolist() == [1.0, 0.0, 0.0]


def test_the_inside_of_a_kernel_is_not_filed() -> None:
  a, b = Tensor([1.0, 2.0]).realize(), Tensor([3.0, 4.0]).realize()
  made = times(a, b)
  assert any(t is made for t in tensors_above([a.uop.base])), "its arguments are"
  kernels = [u for u in made.uop.toposort if is_kernel(u)]
  # constants and loops may be of other graphs, too, in which they are filed
  own = {u for kernel in kernels for u in kernel.toposort if u.op in (Ops.SINK, Ops.END, Ops.STORE, Ops.INDEX)}
  assert own and not any("live" in u.__dict__ for u in own)
  assert made.tolist() == [3.0, 8.0]
