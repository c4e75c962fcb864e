"""Local language models on the tiny-* compiler stack."""

from tiny_llm.files.checkpoint import Checkpoint, open_checkpoint
from tiny_llm.generate import ContextExceeded, Engine, Generation, Grammar, Piece, Request
from tiny_llm.model import Chunk, Model, load_model
from tiny_llm.sampling import SamplingOptions, TokenLogprob
from tiny_llm.session import Session, find_model
from tiny_llm.text.template import ChatTemplate, ChatTemplateError
from tiny_llm.text.tokenizer import StreamDecoder, Tokenizer, TokenizerError

__all__ = [
  "ChatTemplate", "ChatTemplateError", "Checkpoint", "Chunk", "ContextExceeded", "Engine", "Generation", "Grammar",
  "Model", "Piece", "Request", "SamplingOptions", "Session", "StreamDecoder", "TokenLogprob", "Tokenizer",
  "TokenizerError", "find_model", "load_model", "open_checkpoint",
]  # fmt: skip
