"""An HTTP server of OpenAI's API (extra `server`)."""

from tiny_llm.server.app import create_app
from tiny_llm.server.serve import listen, serve

__all__ = ["create_app", "listen", "serve"]
