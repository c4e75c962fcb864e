"""`import tiny_tensor.nn.functional as F`: PyTorch's functions, with its names and the order of its arguments."""

from tiny_tensor.nn.functional.activations import *
from tiny_tensor.nn.functional.attention import *
from tiny_tensor.nn.functional.convolution import *
from tiny_tensor.nn.functional.distances import *
from tiny_tensor.nn.functional.dropouts import *
from tiny_tensor.nn.functional.embeddings import *
from tiny_tensor.nn.functional.fractional import *
from tiny_tensor.nn.functional.losses import *
from tiny_tensor.nn.functional.normalisation import *
from tiny_tensor.nn.functional.pooling import *
from tiny_tensor.nn.functional.sequences import *
from tiny_tensor.nn.functional.vision import *

__all__ = sorted(name for name, value in globals().items() if callable(value) and not name.startswith("_"))
