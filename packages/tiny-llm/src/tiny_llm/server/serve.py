"""The server as a program."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Sequence
from types import FrameType

import uvicorn

from tiny_llm.server.app import create_app
from tiny_llm.server.worker import Worker
from tiny_llm.session import Session

__all__ = ["listen", "serve"]

BACKLOG = 2048
"""Connections that the system may keep waiting, as uvicorn has it."""
SECONDS = 3
"""That clients may take to read the end after Ctrl-C."""


def serve(
  session: Session, sockets: Sequence[socket.socket], *, host: str, api_key: str | None = None,
  origins: Sequence[str] = (), queue: int = 64, quiet: bool = False,
) -> None:  # fmt: skip
  """Serves a model at the sockets that `listen` made for `host`, until Ctrl-C, which is raised as KeyboardInterrupt
  when all is done. On a loopback address, requests must name this machine in their Host header, so that a page whose
  name an attacker points here (DNS rebinding) is refused."""
  local = _is_loopback(host)
  if not local and api_key is None and not quiet:
    print(f"anyone who reaches {host} may ask: --api-key asks for a key", file=sys.stderr)
  hosts = ["localhost", "127.0.0.1", host] if local and ":" not in host else ["*"]
  app = create_app(session, api_key=api_key, origins=origins, hosts=hosts, queue=queue)
  app.state.server.worker.call_when_idle(session.engine.rehearsals())
  config = uvicorn.Config(
    app, log_level="warning", access_log=False, timeout_graceful_shutdown=SECONDS, server_header=False
  )
  try:
    if not quiet:
      at = f"{f'[{host}]' if ':' in host else host}:{sockets[0].getsockname()[1]}"
      print(f"{session.name}: http://{at} (Ctrl-C ends it)", file=sys.stderr)
    _Server(config, app.state.server.worker).run(list(sockets))
  finally:
    app.state.server.close()


def listen(host: str, port: int) -> list[socket.socket]:
  """Sockets that listen at all addresses of a host; port 0 is one that is free. Clients may come from now on, and wait
  until the model is served. Raises ValueError, which names the address, where that cannot be."""
  made: list[socket.socket] = []
  try:
    for family, *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
      chosen = (address[0], made[0].getsockname()[1] if made else port)
      try:
        made.append(socket.create_server(chosen, family=family, backlog=BACKLOG))
      except OSError as error:
        if error.errno != errno.EADDRNOTAVAIL:  # a name may have an address of IPv6 where the machine has none
          raise
  except OSError as error:
    raise ValueError(f"cannot listen at {host}:{port}: {error.strerror}; expected another --port or --host") from None
  if not made:
    raise ValueError(f"cannot listen at {host}:{port}: it is no address of this machine; expected another --host")
  return made


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
