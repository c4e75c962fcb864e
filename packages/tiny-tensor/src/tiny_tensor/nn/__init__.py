"""Layers, optimisers, model files and datasets."""

from typing import TYPE_CHECKING

from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_tensor.nn import datasets, functional, optim, schedule, state
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

# each is imported when it is first used: hardly a program needs all of them
__getattr__ = lazy_names(
  __name__, datasets="", functional="", optim="", schedule="", state="",
  MultiheadAttention="attention", TransformerDecoder="attention", TransformerDecoderLayer="attention",
  TransformerEncoder="attention", TransformerEncoderLayer="attention",
  clip_grad_norm_="clip", clip_grad_value_="clip",
  Conv1d="conv", Conv2d="conv", Conv3d="conv", ConvTranspose1d="conv", ConvTranspose2d="conv",
  Embedding="embedding", EmbeddingBag="embedding", Linear="linear",
  BatchNorm="norm", BatchNorm2d="norm", BatchNorm3d="norm", GroupNorm="norm", InstanceNorm="norm", LayerNorm="norm",
  LayerNorm2d="norm", RMSNorm="norm",
  GRU="recurrent", LSTM="recurrent", RNN="recurrent", LSTMCell="recurrent",
  Dropout="sequential", Sequential="sequential",
)  # fmt: skip
