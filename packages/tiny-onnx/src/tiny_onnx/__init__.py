"""ONNX models on tiny-tensor. See README.md."""

from tiny_onnx.errors import ModelError, UnsupportedOps
from tiny_onnx.export import export
from tiny_onnx.limits import Limits
from tiny_onnx.model import Model, Port, load
from tiny_onnx.values import Narrow

__all__ = ["Limits", "Model", "ModelError", "Narrow", "Port", "UnsupportedOps", "export", "load"]
