"""Layers, optimisers, model files and datasets."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tiny_tensor.nn import functional, optim, schedule, state
from tiny_tensor.nn.attention import (
  MultiheadAttention,
  TransformerDecoder,
  TransformerDecoderLayer,
  TransformerEncoder,
  TransformerEncoderLayer,
)
from tiny_tensor.nn.clip import clip_grad_norm_, clip_grad_value_
from tiny_tensor.nn.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d
from tiny_tensor.nn.embedding import Embedding, EmbeddingBag
from tiny_tensor.nn.linear import Linear
from tiny_tensor.nn.norm import (
  BatchNorm,
  BatchNorm2d,
  BatchNorm3d,
  GroupNorm,
  InstanceNorm,
  LayerNorm,
  LayerNorm2d,
  RMSNorm,
)
from tiny_tensor.nn.recurrent import GRU, LSTM, RNN, LSTMCell
from tiny_tensor.nn.sequential import Dropout, Sequential

if TYPE_CHECKING:
  from tiny_tensor.nn import datasets

__all__ = [
  "BatchNorm",
  "BatchNorm2d",
  "BatchNorm3d",
  "Conv1d",
  "Conv2d",
  "Conv3d",
  "ConvTranspose1d",
  "ConvTranspose2d",
  "Dropout",
  "Embedding",
  "EmbeddingBag",
  "GRU",
  "GroupNorm",
  "InstanceNorm",
  "LSTM",
  "LSTMCell",
  "LayerNorm",
  "LayerNorm2d",
  "Linear",
  "MultiheadAttention",
  "RMSNorm",
  "RNN",
  "Sequential",
  "TransformerDecoder",
  "TransformerDecoderLayer",
  "TransformerEncoder",
  "TransformerEncoderLayer",
  "clip_grad_norm_",
  "clip_grad_value_",
  "datasets",
  "functional",
  "optim",
  "schedule",
  "state",
]


def __getattr__(name: str) -> Any:
  """`datasets` is imported when it is first used: it needs what most programs do without, to read from the network."""
  if name == "datasets":
    return import_module("tiny_tensor.nn.datasets")
  raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
