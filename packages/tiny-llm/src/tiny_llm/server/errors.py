"""What clients are told when a request fails, in OpenAI's form."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from tiny_llm.server.answers import Ended
from tiny_llm.server.body import Refused
from tiny_llm.server.worker import Busy
from tiny_llm.text.template import ChatTemplateError

__all__ = ["HANDLERS"]


def refused(request: Request, error: Exception) -> Response:
  assert isinstance(error, Refused)
  return JSONResponse({"error": error.error}, error.status)


def missing(request: Request, error: Exception) -> Response:
  assert isinstance(error, HTTPException)
  kind = "invalid_request_error"
  message = f"{request.method} {request.url.path}: {error.detail}"
  return JSONResponse(
    {"error": {"message": message, "type": kind, "param": None, "code": None}}, error.status_code, error.headers
  )


def busy(request: Request, error: Exception) -> Response:
  body = {"message": str(error), "type": "server_error", "param": None, "code": "overloaded"}
  return JSONResponse({"error": body}, 503, {"Retry-After": "1"})


def wrong(request: Request, error: Exception) -> Response:
  return refused(request, Refused(str(error)))


def ended(request: Request, error: Exception) -> Response:
  return refused(request, Refused(str(error), status=503, code="stopped", kind="server_error"))


def gone(request: Request, error: Exception) -> Response:
  return Response(status_code=499)  # which nobody reads


def failed(request: Request, error: Exception) -> Response:
  message = f"{type(error).__name__}: {error}"
  return JSONResponse({"error": {"message": message, "type": "server_error", "param": None, "code": None}}, 500)


HANDLERS = {
  Refused: refused, HTTPException: missing, Busy: busy, ChatTemplateError: wrong,
  ClientDisconnect: gone, Ended: ended, Exception: failed,
}  # fmt: skip
"""By the exception that a route ended with: the response."""
