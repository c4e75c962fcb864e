"""Text to tokens and back, and conversations to text."""

from tiny_llm.text.template import ChatTemplate, ChatTemplateError
from tiny_llm.text.tokenizer import StreamDecoder, Tokenizer, TokenizerError

__all__ = ["ChatTemplate", "ChatTemplateError", "StreamDecoder", "Tokenizer", "TokenizerError"]
