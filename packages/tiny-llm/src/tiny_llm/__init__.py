"""Local language models on the tiny-* compiler stack."""

TYPE_CHECKING = False
if TYPE_CHECKING:
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


def __getattr__(name: str) -> object:
  """Imports what a name needs when it is asked for: `python -m tiny_llm` imports this before it can say what Ctrl-C
  does."""
  if name not in __all__:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  from tiny_uop.lazy import lazy_names

  rooms = {
    "files.checkpoint": ("Checkpoint", "open_checkpoint"),
    "generate": ("ContextExceeded", "Engine", "Generation", "Grammar", "Piece", "Request"),
    "model": ("Chunk", "Model", "load_model"),
    "sampling": ("SamplingOptions", "TokenLogprob"),
    "session": ("Session", "find_model"),
    "text.template": ("ChatTemplate", "ChatTemplateError"),
    "text.tokenizer": ("StreamDecoder", "Tokenizer", "TokenizerError"),
  }
  return lazy_names(__name__, **{each: room for room, names in rooms.items() for each in names})(name)
