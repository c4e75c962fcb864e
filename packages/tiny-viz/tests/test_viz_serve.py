"""Who the server answers, and what it gives."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from viz_compiler import compile_it

from tiny_uop.observe import tracing
from tiny_viz import read_trace
from tiny_viz.answers import Answers, Missing
from tiny_viz.page import page
from tiny_viz.serve import Server


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
  path = tmp_path_factory.mktemp("serve") / "t.jsonl"
  with tracing(path):
    compile_it()
  return Answers(read_trace(path, lazy=True), "t.jsonl")


@pytest.fixture(scope="module")
def server(answers: Answers) -> Iterator[Server]:
  with Server(answers) as made:
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()


def ask(server: Server, target: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
  """Status, headers and body; the header Host is as the browser sends it, unless another one is given."""
  connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
  connection.putrequest(method, target, skip_host=True)
  for name, value in ({"Host": f"127.0.0.1:{server.server_port}"} | headers).items():
    connection.putheader(name, value)
  connection.endheaders()
  answer = connection.getresponse()
  found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
  connection.close()
  return found


def test_the_page_and_its_answers(server: Server) -> None:
  status, headers, body = ask(server, f"/?token={server.token}")
  assert status == 200 and headers["content-type"].startswith("text/html") and b"<title>tiny-viz" in body
  assert headers["cache-control"] == "no-store" and headers["referrer-policy"] == "no-referrer"
  status, headers, body = ask(server, f"/api/overview?token={server.token}")
  assert status == 200 and headers["content-type"] == "application/json"
  assert json.loads(body)["units"]["name"] == ["copy_16"]
  status, _, body = ask(server, f"/api/unit/9?token={server.token}")
  assert status == 404 and "the trace has 1 schedules and kernels" in json.loads(body)["error"]


def test_only_who_knows_the_token(server: Server) -> None:
  for target in (
    "/",
    "/api/overview",
    "/?token=",
    "/?token=x",
    f"/?token={server.token}x",
    f"/?token={server.token}&token=x",
  ):
    status, _, body = ask(server, target)
    assert status == 403 and b"token" in body and server.token.encode() not in body, target


def test_only_under_its_own_name(server: Server) -> None:
  good = f"/?token={server.token}"
  for host in (
    "evil.example",
    f"evil.example:{server.server_port}",
    "127.0.0.1",
    f"127.0.0.1:{server.server_port + 1}",
    "",
  ):
    assert ask(server, good, Host=host)[0] == 403, host
  assert ask(server, good, Host=f"localhost:{server.server_port}")[0] == 200


def test_only_on_this_machine(server: Server) -> None:
  assert server.server_address[0] == "127.0.0.1"


def test_nothing_is_written(server: Server) -> None:
  for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
    assert ask(server, f"/?token={server.token}", method)[0] == 501


def test_no_files_are_served(server: Server) -> None:
  for path in (
    "/etc/passwd",
    "/../../etc/passwd",
    "//etc/passwd",
    "/api/../../etc/passwd",
    "/api/%2e%2e/page.html",
    "/style.css",
    "/favicon.ico",
  ):
    status, _, body = ask(server, f"{path}?token={server.token}")
    assert status == 404 and b"root:" not in body, path


_part = (
  st.text(st.characters(codec="utf-8"), max_size=8)
  | st.integers(-9, 10**12).map(str)
  | st.sampled_from(["..", "unit", "graph", "compare"])
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_part, max_size=4))
def test_any_path_is_answered_or_missing(server: Server, parts: list[str]) -> None:
  path = "/".join(quote(part, safe="") for part in parts)
  status, headers, body = ask(server, f"/{path}?token={server.token}")
  assert status in (200, 404) and (status == 404 or not path.strip("/"))  # Python takes // for /
  status, headers, body = ask(server, f"/api/{path}?token={server.token}")
  assert status in (200, 404) and headers["content-type"] == "application/json"
  assert ("error" in json.loads(body)) == (status == 404)


def test_every_path_that_is_told_of_is_answered(answers: Answers) -> None:
  paths = list(answers.paths())
  assert len(paths) == len(set(paths))
  assert {path.partition("/")[0] for path in paths} == {
    "overview", "origins", "rules", "run", "unit", "rule", "pass", "graph", "changes", "rewrite"
  }  # fmt: skip
  for path in paths:
    json.dumps(answers.get(path))
  for path in ("", "unit", "unit/x", "unit/1/2", "unit/-1", "unit/²", "compare", "nothing/1", "unit/99999999999"):
    with pytest.raises(Missing):
      answers.get(path)


def test_the_page_asks_nobody_else() -> None:
  text = page()
  assert "http://" not in text.replace("http://www.w3.org/", "") and "https://" not in text
  assert "default-src &#x27;none&#x27;; connect-src &#x27;self&#x27;" in text and "unsafe" not in text
  assert len(text) < 300_000


# *** the command ***


def serve(folder: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
  """The command, and the first line that it says."""
  command = [sys.executable, "-m", "tiny_viz", "serve", *arguments]
  started = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "VIZ": "-1"})
  assert started.stderr is not None
  return started, started.stderr.readline()


def test_the_command(trace_file: Path) -> None:
  started, line = serve(trace_file.parent, trace_file.name)
  try:
    port, _, token = line.split("127.0.0.1:")[1].split()[0].partition("/?token=")
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=30)
    connection.request("GET", f"/api/overview?token={token}")
    found: dict[str, Any] = json.loads(connection.getresponse().read())
    assert found["name"] == trace_file.name and found["units"]["name"] == ["copy_16"]
    assert len(token) >= 32
  finally:
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=30)
  assert started.returncode == 0
  assert os.listdir(trace_file.parent) == [trace_file.name]  # it leaves no trace of itself


def test_what_is_no_trace_is_not_served(tmp_path: Path) -> None:
  (tmp_path / "t").write_text("x\n")
  started, line = serve(tmp_path, "t")
  started.communicate(timeout=30)
  assert started.returncode == 1 and line.startswith("error: t, line 1: expected a record in JSON")


def test_a_file_that_works_alone(trace_file: Path) -> None:
  started, line = serve(trace_file.parent, trace_file.name, "--html", "out.html")
  started.communicate(timeout=30)
  assert started.returncode == 0 and line.startswith("out.html: 0.")
  text = (trace_file.parent / "out.html").read_text()
  assert "connect-src &#x27;none&#x27;" in text and '"places":{' in text
