"""Models that torch.onnx exports, and silero-vad's, against PyTorch and onnxruntime."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny_onnx

onnxruntime: Any = pytest.importorskip("onnxruntime")  # only in the environment `oracle`
torch: Any = pytest.importorskip("torch")

from onnx_models import Encoder, Tagger, UNet, exported, mobilenet_v2, randomised, resnet18  # noqa: E402

MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], Any]]] = {
  "resnet18": (lambda: resnet18(8), lambda b: torch.randn(b, 3, 32, 32)),
  "mobilenet_v2": (lambda: mobilenet_v2(0.25), lambda b: torch.randn(b, 3, 32, 32)),
  "encoder": (lambda: Encoder(32, 2, 50), lambda b: torch.randint(0, 50, (b, 9))),
  "tagger": (lambda: Tagger(16, 50), lambda b: torch.randint(0, 50, (b, 9))),
  "unet": (lambda: UNet(4), lambda b: torch.randn(b, 3, 16, 16)),
}


RARE = {("tagger", True), ("mobilenet_v2", False), ("mobilenet_v2", True), ("resnet18", False), ("resnet18", True)}
"""Models with many kernels, which are like the others."""


@pytest.mark.parametrize(
  ("name", "dynamo"),
  [pytest.param(n, d, marks=[pytest.mark.nightly] if (n, d) in RARE else []) for n in MODELS for d in (False, True)],
)
def test_exported_models_are_as_in_torch(name: str, dynamo: bool, tmp_path: Path) -> None:
  make, inputs = MODELS[name]
  net, x = randomised(make()), inputs(2)
  model = tiny_onnx.load(exported(net, (x,), tmp_path / "m.onnx", dynamo=dynamo))
  for _ in range(3):  # computed, captured, replayed
    x = inputs(2)
    (found,) = model.numpy(x.numpy()).values()
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
  assert model.eager_because is None, model.eager_because


def test_a_dynamic_batch(tmp_path: Path) -> None:
  make, inputs = MODELS["encoder"]
  net = randomised(make())
  path = exported(net, (inputs(2),), tmp_path / "m.onnx", {"x0": {0: "batch"}, "y": {0: "batch"}})
  model = tiny_onnx.load(path)
  for batch in (1, 3):
    x = inputs(batch)
    (found,) = model.numpy(x.numpy()).values()
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["encoder", "tagger", "unet"])
def test_a_symbolic_batch(name: str, tmp_path: Path) -> None:
  make, inputs = MODELS[name]
  net = randomised(make())
  path = exported(net, (inputs(2),), tmp_path / "m.onnx", {"x0": {0: "batch"}, "y": {0: "batch"}})
  model = tiny_onnx.load(path, sizes={"batch": (1, 4)})
  for batch in (1, 3, 2, 4, 1):
    x = inputs(batch)
    (found,) = model.numpy(x.numpy()).values()
    np.testing.assert_allclose(found, net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
  assert model.eager_because is None, model.eager_because


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_16k_op15", "silero_vad_op18_ifless", "silero_vad_half"])
def test_silero_vad_over_a_stream(name: str) -> None:
  """The recurrent state of each chunk goes into the next: differences would add up."""
  found = importlib.util.find_spec("silero_vad")
  assert found is not None and found.origin is not None
  path = Path(found.origin).parent / "data" / f"{name}.onnx"
  model = tiny_onnx.load(path)
  options = onnxruntime.SessionOptions()
  options.log_severity_level = 3
  session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
  rng = np.random.default_rng(0)
  ours = theirs = np.zeros((2, 1, 128), np.float32)
  for i in range(12):
    chunk = (rng.standard_normal((1, 576)) * 0.1 * np.sin(np.arange(576) / (5 + i))).astype(np.float32)
    given: dict[str, Any] = {"input": chunk, "sr": np.array(16000, np.int64)}
    mine = model.numpy({n: v for n, v in (given | {"state": ours}).items() if n in model.inputs})
    output, theirs = session.run(None, {n: v for n, v in (given | {"state": theirs}).items() if n in model.inputs})
    ours = mine["stateN"]
    np.testing.assert_allclose(mine["output"], output, atol=1e-4, rtol=0)
    np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=0)
  assert model.eager_because is None, model.eager_because
