"""Local language models on the tiny-* compiler stack."""

from tiny_llm.checkpoint import Checkpoint, open_checkpoint
from tiny_llm.model import Chunk, Model, load_model

__all__ = ["Checkpoint", "Chunk", "Model", "load_model", "open_checkpoint"]
