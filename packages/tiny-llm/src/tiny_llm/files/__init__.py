"""Model files: GGUF, and folders as transformers writes them."""

from tiny_llm.files.checkpoint import Checkpoint, open_checkpoint
from tiny_llm.files.folder import is_folder

__all__ = ["Checkpoint", "is_folder", "open_checkpoint"]
