"""The server as a program."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn

from tiny_llm.server.app import create_app
from tiny_llm.server.worker import Worker
from tiny_llm.session import Session

__all__ = ["serve"]

SECONDS = 3
"""That clients may take to read the end after Ctrl-C."""


def serve(
  session: Session, *, host: str = "127.0.0.1", port: int = 8080, api_key: str | None = None,
  origins: Sequence[str] = (), queue: int = 64, quiet: bool = False,
) -> None:  # fmt: skip
  """Serves a model until Ctrl-C. On a loopback address, requests must name this machine in their Host header, so that a
  page whose name an attacker points here (DNS rebinding) is refused."""
  local = _is_loopback(host)
  if not local and api_key is None and not quiet:
    print(f"anyone who reaches {host} may ask: --api-key asks for a key", file=sys.stderr)
  hosts = ["localhost", "127.0.0.1", host] if local and ":" not in host else ["*"]
  app = create_app(session, api_key=api_key, origins=origins, hosts=hosts, queue=queue)
  if not quiet:
    print(f"{session.name}: http://{f'[{host}]' if ':' in host else host}:{port}", file=sys.stderr)
  config = uvicorn.Config(
    app, host=host, port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=SECONDS,
    server_header=False,
  )  # fmt: skip
  try:
    _Server(config, app.state.server.worker).run()
  except KeyboardInterrupt:  # uvicorn raises it again when all is done
    pass
  finally:
    app.state.server.close()


class _Server(uvicorn.Server):
  """A server that ends the answers in progress when it is told to stop; their clients are told."""

  def __init__(self, config: uvicorn.Config, worker: Worker) -> None:
    super().__init__(config)
    self._worker = worker

  def handle_exit(self, sig: int, frame: FrameType | None) -> None:
    self._worker.cancel_all()
    super().handle_exit(sig, frame)


def _is_loopback(host: str) -> bool:
  try:
    return ipaddress.ip_address(host).is_loopback
  except ValueError:
    return host == "localhost"
