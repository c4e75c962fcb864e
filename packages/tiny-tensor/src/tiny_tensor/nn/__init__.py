"""Layers, optimisers, model files and datasets."""

from typing import TYPE_CHECKING

from tiny_tensor.pytorch_names import of_torch_nn
from tiny_uop.lazy import lazy_names

if TYPE_CHECKING:
  from tiny_tensor.nn import datasets, functional, optim, schedule, state
  from tiny_tensor.nn.attention import *
  from tiny_tensor.nn.clip import *
  from tiny_tensor.nn.conv import *
  from tiny_tensor.nn.embedding import *
  from tiny_tensor.nn.linear import *
  from tiny_tensor.nn.module import *
  from tiny_tensor.nn.norm import *
  from tiny_tensor.nn.recurrent import *
  from tiny_tensor.nn.sequential import *
  from tiny_tensor.nn.stateless import *

# each name is imported from its module when it is first used: hardly a program needs all of them
_NAMES = {
  "": ("datasets", "functional", "optim", "schedule", "state"),
  "attention": (
    "MultiheadAttention", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
  ),
  "clip": ("clip_grad_norm_", "clip_grad_value_"),
  "conv": ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"),
  "embedding": ("Embedding", "EmbeddingBag"),
  "linear": ("Linear",),
  "module": ("Module", "ModuleDict", "ModuleList", "Parameter"),
  "norm": (
    "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm", "LayerNorm",
    "LayerNorm2d", "RMSNorm",
  ),
  "recurrent": ("GRU", "LSTM", "LSTMCell", "RNN"),
  "sequential": ("Dropout", "Sequential"),
  "stateless": (
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss",
    "BCEWithLogitsLoss", "CELU", "CosineSimilarity", "CrossEntropyLoss", "ELU", "Flatten", "GELU", "GLU",
    "Hardsigmoid", "Hardswish", "Hardtanh", "HuberLoss", "Identity", "KLDivLoss", "L1Loss", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "MSELoss", "MaxPool1d", "MaxPool2d", "MaxPool3d", "Mish", "NLLLoss", "PixelShuffle",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "SmoothL1Loss", "Softmax", "Softplus", "Softsign", "Tanh",
    "Upsample",
  ),
}  # fmt: skip
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)
__getattr__ = lazy_names(__name__, of_torch_nn, **_MODULES)
