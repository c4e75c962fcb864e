"""The command line, on a small model that talks nonsense: through pipes, and in a terminal."""

from __future__ import annotations

import io
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
from chat_models import talker, write_talker

from tiny_llm.chat import Conversation, shown
from tiny_llm.command_line import main
from tiny_llm.files.checkpoint import open_checkpoint
from tiny_llm.model import Chunk, load_model
from tiny_llm.session import Session, bar, find_model

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
  piped(monkeypatch, "Hello world\n")  # as `echo` writes it: the line goes on
  assert main([*line, "--echo"]) == 0
  assert capsys.readouterr().out == f"Hello world{out}"
  assert main([*line, "-p", "Hello world", "--stop", out[2:4]]) == 0
  assert capsys.readouterr().out == out[: out.find(out[2:4])] + "\n"


def test_perplexity(path: Path, tmp_path: Path, capsys: Capture) -> None:
  text = tmp_path / "text.txt"
  text.write_text("Hello world, this is a text of some tokens. " * 12)
  said = []
  for line in (
    [str(path), str(text), "-c", "48"],
    [str(path), "-c", "48", str(text)],
    ["-c48", "-m", str(path), str(text)],
  ):
    assert main(["perplexity", *line, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""  # which is no terminal, and so sees no progress
    said.append(out)
  assert len(set(said)) == 1
  found: dict[str, Any] = json.loads(said[0])
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
  assert found["architecture"] == "llama" and found["tokenizer"] == "gpt2 smollm" and found["chat_template"] is True
  assert found["sizes"]["layers"] == 2 and found["quantisation"].keys() == {"F32"}
  held = found["memory"]
  assert held["weights"] == sum(found["quantisation"].values()) == 4 * found["parameters"]
  assert held["keys_and_values"] == 2 * 2 * 2 * 2 * 16 * 100 and held["at_least"] == held["weights"] + 25_600
  assert main(["info", str(path)]) == 0
  out = capsys.readouterr().out
  assert "kv heads 2" in out and "F32 0.8 MB" in out and "chat template    yes" in out


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


def test_what_goes_wrong_is_said_in_a_line(
  path: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
  monkeypatch.setitem(sys.modules, "llama_cpp", None)
  files = {"empty.gguf": b"", "text.gguf": b"Hello", "half.gguf": path.read_bytes()[: path.stat().st_size // 2]}
  for name, data in {**files, "latin.txt": b"caf\xe9"}.items():
    (tmp_path / name).write_bytes(data)
  plain = write_talker(tmp_path / "plain.gguf", template=None)
  (tmp_path / "folder").mkdir()
  with socket.create_server(("127.0.0.1", 0)) as taken:
    port = str(taken.getsockname()[1])
    for line, says in [
      (["info"], "no model: give the path"),
      ([], "no model: give the path"),
      (["info", "nothing", "--models", str(tmp_path)], "no model nothing"),
      (["info", "one", "--model", "two"], "two models: one, and --model two"),
      (["info", str(tmp_path)], "is a folder with empty.gguf, half.gguf, plain.gguf, text.gguf, and without config"),
      (["info", str(tmp_path / "folder")], "is a folder with no .gguf file"),
      *((["info", str(tmp_path / name)], f"{name}' is not a valid GGUF file") for name in files),
      (["info", "", "--models", str(tmp_path / "folder")], "no model : it is no file"),
      (["generate", str(path), "-p", "Hello " * 90, "-c", "16"], "expected 15 at most, as the context has 16 with the"),
      (["embed", str(path), "-p", "Hello " * 90, "-c", "16"], "as the context has 16. A larger --context has more"),
      (["perplexity", str(path)], f"one file, {path}: expected a model, and then the text"),
      (["bench", str(path), "--prompt", str(1 << 40)], "A smaller --prompt, --position or --slots takes less"),
      (["generate", str(path), "-p", "", "-c", "16"], "no tokens: expected one"),
      (["generate", str(path), "-p", "x", "-c", str(1 << 40)], "A smaller --context takes less"),
      (["perplexity", str(path), str(tmp_path / "none.txt")], "none.txt: No such file"),
      (["perplexity", str(path), str(tmp_path / "latin.txt")], "latin.txt is no UTF-8: byte 3 is 0xe9"),
      (["bench", str(path), "--position", "9"], "expected --slots of 2 at least"),
      (["bench", str(path), "--prompt", "4", "--against", "llama-cpp"], "pip install tiny-llm[bench]"),
      (["serve", str(path), "--port", port], f"cannot listen at 127.0.0.1:{port}: Address already in use"),
    ]:
      assert main([*line, "--quiet"] if line[:1] in (["generate"], ["serve"]) else line) == 1
      err = capsys.readouterr().err
      assert says in err and err.startswith("tiny_llm: ") and err.count("\n") == 1
  sys.stdin = io.StringIO("Hello")
  try:
    assert main(["chat", str(plain)]) == 1
  finally:
    sys.stdin = sys.__stdin__
  assert f"{plain}: the file has no chat template" in capsys.readouterr().err


@pytest.mark.parametrize(
  ("line", "says"),
  [
    ("frobnicate", "invalid choice: 'frobnicate'"),
    ("info M -c 0", "argument --context/-c: '0' is not an integer of 1 at least"),
    ("info M -c -5", "'-5' is not an integer of 1 at least"),
    ("chat M -c 1.5", "'1.5' is not an integer"),
    ("info M --cache-type f8", "invalid choice: 'f8'"),
    ("info M extra", "unrecognized arguments: extra"),
    ("generate M -n 0", "'0' is not an integer of 1 at least"),
    ("generate M --temperature abc", "argument --temperature: 'abc' is not a number from 0 to 1,000,000"),
    ("generate M --temperature nan", "'nan' is not a number"),
    ("generate M --top-p 2", "'2' is not a number from 0 to 1"),
    ("generate M --repeat-penalty 0", "'0' is not a number from 1e-06 to 1,000,000"),
    ("generate M --seed -1", "'-1' is not an integer from 0 to 18,446,744,073,709,551,615"),
    ("generate M --stop=", "the text is empty"),
    ("generate M --speculate -1", "'-1' is not an integer of 0 at least"),
    ("perplexity M F -c 1", "'1' is not an integer of 2 at least"),
    ("bench M -c 8", "unrecognized arguments: -c 8"),
    ("bench M --slices 0", "'0' is not an integer of 1 at least"),
    ("serve M --slots 0", "'0' is not an integer of 1 at least"),
    ("serve M --port 99999", "'99999' is not an integer from 0 to 65,535"),
  ],
)
def test_a_wrong_command_line_is_said_before_a_model_is_loaded(line: str, says: str, capsys: Capture) -> None:
  with pytest.raises(SystemExit) as ended:
    main(line.split())
  err = capsys.readouterr().err
  assert ended.value.code == 2 and says in err and err.count("\n") == 1


def run(line: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
  command = [sys.executable, "-m", "tiny_llm", *line]
  return subprocess.run(command, stderr=subprocess.PIPE, check=False, timeout=300, **options)


def test_what_comes_through_a_pipe_is_utf8(path: Path) -> None:
  line = ["generate", str(path), "-c", "64", "-n", "4", "--quiet"]
  found = run(line, input=b"caf\xe9", stdout=subprocess.PIPE)
  assert (found.returncode, found.stdout) == (1, b"")
  assert found.stderr == b"tiny_llm: standard input is no UTF-8: byte 3 is 0xe9. Convert it, with iconv for example\n"
  # as a text by itself, marks of its beginning and ends of lines of Windows do not count
  texts = [b"one\ntwo", b"\xef\xbb\xbfone\r\ntwo"]
  tokens = [run(["tokenize", str(path)], input=text, stdout=subprocess.PIPE).stdout for text in texts]
  assert tokens[0] == tokens[1] != b""
  # an argument that is no UTF-8 is text all the same, with marks of what cannot be read
  found = run(["tokenize", str(path), "-p", os.fsdecode(b"caf\xe9")], stdout=subprocess.PIPE)
  assert (found.returncode, found.stderr) == (0, b"") and found.stdout.count(b"\n") >= 2


@pytest.mark.skipif(sys.platform == "win32", reason="its shells close no streams")
def test_closed_streams(path: Path) -> None:
  generate = ["generate", str(path), "-c", "64", "-n", "4", "-p", "Hello"]
  for stream, line, status, says in [
    ("<&-", ["generate", str(path)], 1, b"tiny_llm: standard input is closed: expected a text"),
    ("<&-", ["chat", str(path)], 1, b"tiny_llm: standard input is closed"),
    ("<&-", generate, 0, b"[prompt "),
    (">&-", generate, 0, b"[prompt "),
    ("2>&-", generate, 0, b""),
    ("| head -c 0", ["info", str(path)], 0, b""),
    ("| head -c 0", generate, 0, b""),
  ]:
    shell = ["bash", "-c", f'set -o pipefail; "$0" -m tiny_llm "$@" {stream}', sys.executable]
    found = subprocess.run([*shell, *line], capture_output=True, check=False, timeout=300)
    assert (found.returncode, found.stderr[: len(says)]) == (status, says), (stream, line, found)
    assert b"Traceback" not in found.stderr and b"Exception" not in found.stderr
  full = Path("/dev/full")
  if full.exists():
    with full.open("wb") as nowhere:
      found = run(generate, stdout=nowhere)
    assert (found.returncode, found.stderr) == (1, b"tiny_llm: No space left on device\n")


def test_what_a_model_says_does_not_control_the_terminal() -> None:
  assert shown("a\x1b[31mb\x07\r\x9b\n\té🙂") == "a[31mb\n\té🙂"


def test_a_bar_shows_how_much_is_done(path: Path) -> None:
  assert bar(0.5, "utf-8") == "██████████░░░░░░░░░░  50%"
  assert bar(1.5, "ascii") == "#################### 150%" and bar(0, None) == "--------------------   0%"
  shares: list[float] = []
  load_model(open_checkpoint(path), context=8, progress=shares.append)
  assert shares == sorted(shares) and shares[0] == 0 and 0.5 < shares[-1] <= 1 and len(shares) > 10


class Terminal:
  """The program in a pseudo-terminal. `output` is all that it has shown."""

  def __init__(self, *line: str, program: Sequence[str] = ("-m", "tiny_llm")) -> None:
    import pty

    self.output, self.status = b"", list[int]()
    self.child, self.end = pty.fork()
    if self.child == 0:
      os.execv(sys.executable, [sys.executable, *program, *line])

  def __enter__(self) -> Terminal:
    return self

  def __exit__(self, *_: object) -> None:
    if not self.status:
      os.kill(self.child, signal.SIGKILL)
      os.waitpid(self.child, 0)
    os.close(self.end)

  def press(self, keys: bytes) -> None:
    os.write(self.end, keys)

  def wait(self, done: Callable[[], bool], *, press: bytes = b"") -> None:
    """Reads until something is so. Presses keys at once, and again whenever nothing comes for two seconds: the terminal
    and CPython lose or keep keys that come between a prompt and the wait for a key."""
    self.press(press)
    end = time.monotonic() + 120
    while not done():
      assert time.monotonic() < end, self.output
      if select.select([self.end], [], [], 2)[0]:
        try:
          self.output += os.read(self.end, 1 << 16)
        except OSError:  # how Linux says that the child has closed its end
          time.sleep(0.01)
      else:
        self.press(press)

  def until(self, text: bytes, count: int = 1, *, press: bytes = b"") -> None:
    self.wait(lambda: self.output.count(text) >= count, press=press)

  def ended(self, *, press: bytes = b"") -> int:
    """The exit status, when it is there."""

    def has_ended() -> bool:
      pid, code = os.waitpid(self.child, os.WNOHANG)
      self.status.extend([os.waitstatus_to_exitcode(code)] if pid else [])
      return bool(self.status)

    self.wait(has_ended, press=press)
    return self.status[0]


IMPORTING = """
import os, runpy, signal, sys

class Interrupts:
  def find_spec(self, name, path=None, target=None):
    if name == module:
      os.kill(os.getpid(), signal.SIGINT)

module = sys.argv.pop(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs in the background of a shell does not have it
sys.meta_path.insert(0, Interrupts())
runpy.run_module("tiny_llm", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGINT for other processes")
@pytest.mark.parametrize("module", ["numpy", "tiny_tensor", "tiny_runtime.execution.execute"])
def test_ctrl_c_before_there_is_an_answer(module: str, path: Path) -> None:
  """While modules are imported, and while the model is loaded."""
  line = ["generate", str(path), "-c", "64", "-p", "Hello"]
  found = subprocess.run(
    [sys.executable, "-c", IMPORTING, module, *line], capture_output=True, check=False, timeout=300
  )
  # CPython ends by the signal itself where source was executed when it came
  assert found.returncode in (130, -signal.SIGINT) and found.stdout + found.stderr == b""


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_ctrl_c_where_nothing_goes_on_after_an_answer(command: str, path: Path, tmp_path: Path) -> None:
  (tmp_path / "program.py").write_text(INTERRUPTED)
  line = [sys.executable, str(tmp_path / "program.py"), "step", "1", command, str(path), "-c", "400"]
  found = subprocess.run(line, input=b"Hello", capture_output=True, check=False, timeout=300)
  assert (found.returncode, found.stdout, found.stderr) == (130, b"", b"")


IN_TERMINALS = pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")


@IN_TERMINALS
def test_a_conversation_in_a_terminal(path: Path, tmp_path: Path) -> None:
  line = ["chat", str(path), "-c", "1000", "--seed", "3", "--system", "Be brief.", "-n", "400"]
  saved = tmp_path / "saved.json"
  with Terminal(*line) as terminal:
    terminal.until(b">>> ")
    assert b"% loading Small" in terminal.output and b"% compiling" in terminal.output
    terminal.press(b"Hello there\n")
    terminal.until(b"Hello there\r\n")
    size = len(terminal.output)
    terminal.wait(lambda: len(terminal.output) >= size + 8)  # some of the answer
    terminal.press(b"\x03")
    terminal.until(b">>> ", 2)
    assert any(end in terminal.output for end in (b"; cancelled]", b"; stop]", b"; length]"))
    terminal.press(f"/save {saved}\n".encode())
    terminal.until(b">>> ", 3)
    messages = json.loads(saved.read_text())
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    assert messages[1]["content"] == "Hello there"
    terminal.until(b"Ctrl-C once more leaves", press=b"\x03")
    terminal.until(b"forgotten", press=b"/reset\n")
    terminal.press(f"/save {saved}\n".encode())
    terminal.until(b"(1 message in")
    assert json.loads(saved.read_text()) == [{"role": "system", "content": "Be brief."}]
    saved.write_text(json.dumps(messages))
    terminal.press(f"/load {saved}\n/load nothing.json\n/save /\n/save ~nobody-here/x\n/halp me\n".encode())
    terminal.until(b"/system TEXT")
    for says in (
      b"nothing.json: No such file",
      b"/: Is a directory",
      b"no such folder of a user",
      b"no command /halp ",
    ):
      assert says in terminal.output
    terminal.press(b"zq%" * 500 + b"\n")  # more than there is room for
    terminal.until(b"/reset begins anew")
    assert terminal.ended(press=b"\x04") == 0
    assert b"kernels" not in terminal.output  # one bar at a time, and none in an answer


@pytest.mark.parametrize(
  "text",
  ["", "{}", "[1]", '[{"role": "user"}]', '[{"role": "user", "content": 5}]', '[{"role": ["user"], "content": "x"}]',
   '[{"role": "<|im_end|>", "content": "x"}]', "\0" * 9, "[" * 100_000, "\x80"],
)  # fmt: skip
def test_conversations_that_are_none_are_refused_by_name(path: Path, tmp_path: Path, text: str) -> None:
  session = Session(path, context=64, quiet=True)
  try:
    conversation = Conversation(session, session.options({}), system="Be brief.", quiet=True)
    (tmp_path / "said.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"said\.json"):
      conversation.command(f"/load {tmp_path / 'said.json'}")
    assert conversation.system == "Be brief."
  finally:
    session.close()


@IN_TERMINALS
def test_what_ends_the_program_at_the_prompt(path: Path) -> None:
  """It leaves the terminal as it was: a line that is edited shows nothing that the terminal itself would."""
  import termios

  line = ["chat", str(path), "-c", "64"]
  with Terminal(*line) as terminal:
    terminal.until(b">>> ")
    assert terminal.ended(press=b"\x03") == 130 and b"Ctrl-C once more leaves" in terminal.output
    assert b"Traceback" not in terminal.output
  for number in (signal.SIGTERM, signal.SIGHUP):
    with Terminal(*line) as terminal:
      before = termios.tcgetattr(terminal.end)
      terminal.until(b">>> ")
      assert termios.tcgetattr(terminal.end) != before
      os.kill(terminal.child, number)
      assert terminal.ended(press=b"\n") == 128 + number and termios.tcgetattr(terminal.end) == before


@IN_TERMINALS
def test_a_narrow_terminal_shows_bars_in_one_line(path: Path) -> None:
  import fcntl
  import struct
  import termios

  with Terminal("chat", str(path), "-c", "64") as terminal:
    fcntl.ioctl(terminal.end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 30, 0, 0))
    terminal.until(b">>> ")
    shown = terminal.output.partition(b"Ctrl-C stops")[0].decode()
    lines = [line for line in shown.replace("\x1b[K", "").split("\r") if line]
    assert lines and max(map(len, lines)) < 30


@IN_TERMINALS
def test_a_conversation_that_fills_the_context(path: Path) -> None:
  with Terminal("chat", str(path), "-c", "48", "--seed", "3", "--temperature", "2") as terminal:
    terminal.until(b">>> ")
    terminal.until(b"the context is full]", press=b"Hi\n")
    assert terminal.ended(press=b"\x04") == 0


INTERRUPTED = """
import os, signal, sys
from tiny_llm.command_line import main
from tiny_llm.generate import Engine
from tiny_llm.text.template import ChatTemplate

kind, name = {"render": (ChatTemplate, "render"), "step": (Engine, "step")}[sys.argv.pop(1)]
times, whole = int(sys.argv.pop(1)), getattr(kind, name)

def interrupted(self, *arguments, **keywords):
  if name == "step" or "Hello" in str(arguments):
    for _ in range(times):
      os.kill(os.getpid(), signal.SIGINT)
  return whole(self, *arguments, **keywords)

setattr(kind, name, interrupted)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


@IN_TERMINALS
@pytest.mark.parametrize(
  ("where", "times", "says"),
  [("render", "1", b"stopped before the answer"), ("step", "1", b"; cancelled]"), ("step", "3", b"once more ends")],
)
def test_ctrl_c_before_the_first_token(where: str, times: str, says: bytes, path: Path, tmp_path: Path) -> None:
  """While the template is rendered, and while the prompt is read: the program stays, unless it is pressed thrice."""
  (tmp_path / "program.py").write_text(INTERRUPTED)
  program = [str(tmp_path / "program.py"), where, times]
  with Terminal("chat", str(path), "-c", "400", "--seed", "3", program=program) as terminal:
    terminal.until(b">>> ")
    terminal.press(b"Hello\n")
    terminal.until(says)
    if times == "3":
      assert terminal.ended() == 130
    else:
      terminal.until(b">>> ", 2)
      assert terminal.ended(press=b"\x04") == 0


@IN_TERMINALS
def test_bytes_that_are_no_text_do_not_end_a_conversation(path: Path, tmp_path: Path) -> None:
  """Where the answer goes to a file, nothing edits lines, and bytes come as they are typed."""
  to_file = "import io, sys; sys.stdout = io.StringIO(); from tiny_llm.command_line import main; sys.exit(main())"
  saved = tmp_path / "saved.json"
  with Terminal("chat", str(path), "-c", "400", "-n", "4", program=["-c", to_file]) as terminal:
    terminal.until(b"/help lists commands")
    terminal.press(b"caf\xe9 is\n")
    terminal.until(b"[prompt ")
    terminal.press(f"/save {saved}\n".encode())
    terminal.until(b"2 messages in")
    assert json.loads(saved.read_text())[0]["content"] == "caf\ufffd is"
    assert terminal.ended(press=b"\x04") == 0
