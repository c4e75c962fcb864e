"""The command line, on a small model that talks nonsense: through pipes, and in a terminal."""

from __future__ import annotations

import io
import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from chat_models import talker, write_talker

from tiny_llm.__main__ import main
from tiny_llm.chat import shown
from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.model import Chunk, load_model
from tiny_llm.session import bar, find_model

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
  return write_talker(tmp_path_factory.mktemp("models") / "Small-Talker-1.5-0.2M-Instruct-F32.gguf")


def piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
  monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_a_message_through_a_pipe(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
  answers = []
  for _ in range(2):
    piped(monkeypatch, "Hello\n")
    line = ["--model", "small-talker1.5:0.2m", "--models", str(path.parent), "-c", "100", "--seed", "1", "-n", "12"]
    assert main(line) == 0
    out, err = capsys.readouterr()
    assert "tokens/s" in err and "first token after" in err
    answers.append(out)
  assert answers[0] == answers[1] != "" and answers[0].endswith("\n")
  piped(monkeypatch, " \n")
  assert main(["chat", str(path)]) == 1
  assert "standard input is empty" in capsys.readouterr().err


def test_generate(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
  line = ["generate", str(path), "-c", "64", "--temperature", "0", "-n", "8", "--quiet"]
  assert main([*line, "-p", "Hello world"]) == 0
  out, err = capsys.readouterr()
  assert err == "" and len(out) > 1
  piped(monkeypatch, "Hello world")
  assert main([*line, "--echo"]) == 0
  assert capsys.readouterr().out == f"Hello world{out}"
  assert main([*line, "-p", "Hello world", "--stop", out[2:4]]) == 0
  assert capsys.readouterr().out == out[: out.find(out[2:4])] + "\n"


def test_perplexity(path: Path, tmp_path: Path, capsys: Capture) -> None:
  text = tmp_path / "text.txt"
  text.write_text("Hello world, this is a text of some tokens. " * 12)
  assert main(["perplexity", str(path), str(text), "-c", "48", "--json", "--quiet"]) == 0
  found: dict[str, Any] = json.loads(capsys.readouterr().out)
  model, tokenizer = talker(path, context=48)
  tokens, losses = tokenizer.encode(text.read_text()), []
  for start in range(0, len(tokens) - 47, 48):
    (logits,) = model.step([Chunk(0, 0, tokens[start : start + 48])], all_logits=True)
    values = np.asarray(logits).astype(np.float64)
    values -= np.log(np.exp(values).sum(-1, keepdims=True))
    losses += [-values[at - 1, tokens[start + at]] for at in range(24, 48)]
  assert found["tokens"] == len(losses) and found["context"] == 48
  assert math.isclose(found["perplexity"], math.exp(float(np.mean(losses))), rel_tol=1e-4)
  text.write_text("short")
  assert main(["perplexity", str(path), str(text)]) == 1
  assert "expected 512 at least" in capsys.readouterr().err


def test_embed(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
  assert main(["embed", str(path), "-p", "Hello world", "-c", "64", "--quiet"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert len(found) == 64 and math.isclose(sum(x * x for x in found), 1, rel_tol=1e-5)
  piped(monkeypatch, "Hello world")
  assert main(["embed", str(path), "-c", "64", "--quiet"]) == 0
  np.testing.assert_allclose(json.loads(capsys.readouterr().out), found, rtol=1e-4, atol=1e-5)


def test_tokenize(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
  assert main(["tokenize", str(path), "-p", "Hi<|im_end|>", "--special", "--json"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert "".join(found["pieces"]) == "Hi<|im_end|>" and found["tokens"][-1] == 2
  piped(monkeypatch, "Hi<|im_end|>")
  assert main(["tokenize", str(path)]) == 0
  assert "im_end" not in capsys.readouterr().out


def test_info(path: Path, capsys: Capture) -> None:
  assert main(["info", str(path), "--json", "-c", "100"]) == 0
  found = json.loads(capsys.readouterr().out)
  assert found["architecture"] == "llama" and found["tokenizer"] == "gpt2 smollm" and found["chat_template"] == "yes"
  assert found["sizes"]["layers"] == 2 and found["quantisation"].keys() == {"F32"}
  assert main(["info", str(path)]) == 0
  assert "kv heads 2" in capsys.readouterr().out


def test_models_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
  names = ["Llama-3.2-1B-Instruct-Q4_K_M.gguf", "Llama-3.2-3B-Instruct-Q4_K_M.gguf", "qwen3-0.6b.gguf", "a/b.gguf"]
  for name in names:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
  monkeypatch.setenv("TINY_LLM_MODELS", str(tmp_path))
  for name, file in [
    ("llama3.2:1b", names[0]), ("qwen3:0.6b", names[2]), ("qwen3", names[2]), ("qwen3:latest", names[2]),
    ("Llama-3.2-3B-Instruct-Q4_K_M", names[1]), (str(tmp_path / names[0]), names[0]), ("b", names[3]),
  ]:  # fmt: skip
    assert find_model(name) == tmp_path / file
  with pytest.raises(ValueError, match="may be any of Llama-3.2-1B"):
    find_model("llama3.2")
  with pytest.raises(FileNotFoundError, match="no model gemma:2b.*qwen3-0.6b.gguf"):
    find_model("gemma:2b")
  with pytest.raises(FileNotFoundError, match="nothing"):
    find_model("gemma:2b", tmp_path / "other")


def test_a_model_from_a_url_that_was_given(path: Path, tmp_path: Path) -> None:
  handler = partial(SimpleHTTPRequestHandler, directory=str(path.parent))
  with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/{path.name}"
    try:
      found = find_model("", tmp_path, url=url)
    finally:
      server.shutdown()
    thread.join(60)
  assert found == tmp_path / path.name and found.read_bytes() == path.read_bytes()
  assert find_model("", tmp_path, url=url) == found  # it is there, and nobody is asked


def test_what_goes_wrong_is_said_in_a_line(path: Path, tmp_path: Path, capsys: Capture) -> None:
  wrong = tmp_path / "wrong.gguf"
  wrong.write_bytes(b"GGUF")
  plain = write_talker(tmp_path / "plain.gguf", template=None)
  for line, says in [
    (["info"], "no model: give the path"),
    (["info", "nothing", "--models", str(tmp_path)], "no model nothing"),
    (["info", str(wrong)], "wrong.gguf"),
    (["generate", str(path), "-p", "x", "--temperature", "-1"], "temperature"),
    (["generate", str(path), "-p", "Hello " * 90, "-c", "16"], "the prompt has"),
    (["perplexity", str(path), str(tmp_path / "none.txt")], "none.txt"),
  ]:
    assert main(line) == 1
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err
  sys.stdin = io.StringIO("Hello")
  try:
    assert main(["chat", str(plain)]) == 1
  finally:
    sys.stdin = sys.__stdin__
  assert "no chat template" in capsys.readouterr().err


def test_what_a_model_says_does_not_control_the_terminal() -> None:
  assert shown("a\x1b[31mb\x07\r\x9b\n\té🙂") == "a[31mb\n\té🙂"


def test_a_bar_shows_how_much_is_done(path: Path) -> None:
  assert bar(0.5, "utf-8") == "██████████░░░░░░░░░░  50%"
  assert bar(1.5, "ascii") == "#################### 150%" and bar(0, None) == "--------------------   0%"
  shares: list[float] = []
  load_model(open_checkpoint(path), context=8, progress=shares.append)
  assert shares == sorted(shares) and shares[0] == 0 and 0.5 < shares[-1] <= 1 and len(shares) > 10


@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")
def test_a_conversation_in_a_terminal(path: Path, tmp_path: Path) -> None:
  import pty

  command = [sys.executable, "-m", "tiny_llm", "chat", str(path), "-c", "1000", "--seed", "3", "--system", "Be brief."]
  child, terminal = pty.fork()
  if child == 0:
    os.execv(sys.executable, [*command, "-n", "400"])
  output = b""

  def wait(done: Callable[[], bool], *, press: bytes = b"") -> None:
    """Reads until something is so. Presses keys at once, and again whenever nothing comes for two seconds: the terminal
    and CPython lose or keep keys that come between a prompt and the wait for a key."""
    nonlocal output
    os.write(terminal, press)
    end = time.monotonic() + 120
    while not done():
      assert time.monotonic() < end, output
      if select.select([terminal], [], [], 2)[0]:
        try:
          output += os.read(terminal, 1 << 16)
        except OSError:  # how Linux says that the child has closed its end
          time.sleep(0.01)
      else:
        os.write(terminal, press)

  def until(text: bytes, count: int, *, press: bytes = b"") -> None:
    wait(lambda: output.count(text) >= count, press=press)

  status: list[int] = []

  def has_ended() -> bool:
    pid, code = os.waitpid(child, os.WNOHANG)
    status.extend([code] if pid else [])
    return bool(status)

  saved = tmp_path / "saved.json"
  try:
    until(b">>> ", 1)
    assert b"% loading Small" in output and b"% compiling" in output
    os.write(terminal, b"Hello there\n")
    until(b"Hello there\r\n", 1)
    size = len(output)
    wait(lambda: len(output) >= size + 8)  # some of the answer
    os.write(terminal, b"\x03")
    until(b">>> ", 2)
    assert b"; cancelled]" in output or b"; stop]" in output or b"; length]" in output
    os.write(terminal, f"/save {saved}\n".encode())
    until(b">>> ", 3)
    messages = json.loads(saved.read_text())
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert messages[1]["content"] == "Hello there"
    until(b"/exit leaves", 1, press=b"\x03")  # at the prompt Ctrl-C leaves nothing but a hint
    until(b"forgotten", 1, press=b"/reset\n")
    os.write(terminal, f"/save {saved}\n".encode())
    until(b"(1 messages in", 1)
    assert json.loads(saved.read_text()) == [{"role": "system", "content": "Be brief."}]
    saved.write_text(json.dumps(messages))
    os.write(terminal, f"/load {saved}\n/load nothing.json\n/halp me\n".encode())
    until(b"/system TEXT", 1)
    assert b"nothing.json" in output and b"there is no command /halp:" in output
    os.write(terminal, b"zq%" * 500 + b"\n")  # more than there is room for
    until(b"/reset begins anew", 1)
    wait(has_ended, press=b"\x04")
    assert os.waitstatus_to_exitcode(status[0]) == 0
  finally:
    if not status:
      os.kill(child, signal.SIGKILL)
      os.waitpid(child, 0)
    os.close(terminal)
