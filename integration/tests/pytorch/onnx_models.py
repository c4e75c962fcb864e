"""Models of PyTorch in their common forms, small ones too, and what torch.onnx makes of them."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn


def conv(i: int, o: int, k: int = 3, s: int = 1, groups: int = 1, act: nn.Module | None = None) -> nn.Sequential:
  parts = [nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=False), nn.BatchNorm2d(o)]
  return nn.Sequential(*parts, *([act] if act is not None else []))


class Block(nn.Module):  # type: ignore[misc, unused-ignore]
  """The basic block of He et al. 2016."""

  def __init__(self, i: int, o: int, s: int) -> None:
    super().__init__()
    self.a, self.b = conv(i, o, 3, s, act=nn.ReLU()), conv(o, o)
    self.skip = conv(i, o, 1, s) if s > 1 or i != o else nn.Identity()

  def forward(self, x: Any) -> Any:
    return torch.relu(self.b(self.a(x)) + self.skip(x))


def resnet18(width: int = 64) -> nn.Module:
  layers: list[nn.Module] = [conv(3, width, 7, 2, act=nn.ReLU()), nn.MaxPool2d(3, 2, 1)]
  i = width
  for n, o in enumerate([width, 2 * width, 4 * width, 8 * width]):
    layers += [Block(i, o, 1 if n == 0 else 2), Block(o, o, 1)]
    i = o
  return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


class Inverted(nn.Module):  # type: ignore[misc, unused-ignore]
  """The inverted residual of Sandler et al. 2018."""

  def __init__(self, i: int, o: int, s: int, t: int) -> None:
    super().__init__()
    wide = [conv(i, i * t, 1, act=nn.ReLU6())] if t > 1 else []
    self.body = nn.Sequential(*wide, conv(i * t, i * t, 3, s, i * t, nn.ReLU6()), conv(i * t, o, 1))
    self.same = s == 1 and i == o

  def forward(self, x: Any) -> Any:
    return x + self.body(x) if self.same else self.body(x)


def mobilenet_v2(scale: float = 1.0) -> nn.Module:
  rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
  layers, i = [conv(3, int(32 * scale), 3, 2, act=nn.ReLU6())], int(32 * scale)
  for t, c, n, s in rows:
    for k in range(n):
      layers.append(Inverted(i, int(c * scale), s if k == 0 else 1, t))
      i = int(c * scale)
  last = int(1280 * scale)
  return nn.Sequential(
    *layers, conv(i, last, 1, act=nn.ReLU6()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 1000)
  )


class Encoder(nn.Module):  # type: ignore[misc, unused-ignore]
  """A transformer encoder over token ids."""

  def __init__(self, width: int = 256, layers: int = 4, words: int = 1000) -> None:
    super().__init__()
    self.words = nn.Embedding(words, width)
    self.places = nn.Parameter(torch.randn(512, width) * 0.02)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True)
    self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

  def forward(self, tokens: Any) -> Any:
    return self.body(self.words(tokens) + self.places[: tokens.shape[1]])


class Tagger(nn.Module):  # type: ignore[misc, unused-ignore]
  """A bidirectional LSTM that labels tokens."""

  def __init__(self, width: int = 64, words: int = 500, labels: int = 12) -> None:
    super().__init__()
    self.words = nn.Embedding(words, width)
    self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
    self.out = nn.Linear(2 * width, labels)

  def forward(self, tokens: Any) -> Any:
    return self.out(self.lstm(self.words(tokens))[0])


class UNet(nn.Module):  # type: ignore[misc, unused-ignore]
  """Two levels of Ronneberger et al. 2015, one with a transposed convolution, one that interpolates."""

  def __init__(self, width: int = 16) -> None:
    super().__init__()
    relu = nn.ReLU()
    self.a, self.b, self.c = (conv(i, o, act=relu) for i, o in ((3, width), (width, 2 * width), (2 * width, 4 * width)))
    self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
    self.d, self.e = conv(4 * width, 2 * width, act=relu), conv(3 * width, width, act=relu)
    self.out = nn.Conv2d(width, 2, 1)

  def forward(self, x: Any) -> Any:
    pool = nn.functional.max_pool2d
    a = self.a(x)
    b = self.b(pool(a, 2))
    c = self.c(pool(b, 2))
    d = self.d(torch.cat([self.up(c), b], 1))
    wide = nn.functional.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
    return self.out(self.e(torch.cat([wide, a], 1)))


def randomised(model: nn.Module) -> nn.Module:
  """A model with statistics of batch normalisation that are not 0 and 1, ready for inference."""
  torch.manual_seed(0)
  for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
      nn.init.uniform_(module.running_mean, -0.1, 0.1)
      nn.init.uniform_(module.running_var, 0.5, 1.5)
  return model.eval()


def exported(
  model: nn.Module, inputs: tuple[Any, ...], path: Path, dynamic: dict[str, Any] | None = None, dynamo: bool = False
) -> Path:
  """The file that torch.onnx writes for a model."""
  logging.getLogger("torch.onnx").setLevel(logging.ERROR)
  with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
    warnings.simplefilter("ignore")
    names = [f"x{i}" for i in range(len(inputs))]
    more: dict[str, Any] = {"dynamic_axes": dynamic} if dynamic and not dynamo else {}
    torch.onnx.export(model, inputs, str(path), input_names=names, output_names=["y"], dynamo=dynamo, **more)
  onnx.checker.check_model(str(path))
  return path
