"""A conversation in a terminal."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TextIO

from tiny_llm.generate import ContextExceeded, Generation, Request
from tiny_llm.sampling import SamplingOptions
from tiny_llm.session import Session
from tiny_llm.system import ENDING
from tiny_llm.text.template import ChatTemplateError
from tiny_tensor import BackendError, Context, OutOfMemory

__all__ = ["Conversation", "chat"]

HELP = """\
/reset         forget the conversation, and keep the system message
/system TEXT   begin anew with this system message; without TEXT with none
/save FILE     write the conversation as JSON
/load FILE     go on with a conversation that was saved
/help          this
/exit          leave, as Ctrl-D does, and Ctrl-C twice. Ctrl-C stops an answer\
"""


class Conversation:
  """Messages, and the model's answers to them, written to `out` as they come.

  `messages` are those of OpenAI's API. An answer that Ctrl-C stopped stays in the conversation as far as it came; if
  nothing came, its question does not stay either.
  """

  def __init__(
    self, session: Session, options: SamplingOptions, *, system: str | None = None, max_tokens: int | None = None,
    stop: tuple[str, ...] = (), out: TextIO | None = None, quiet: bool = False,
  ) -> None:  # fmt: skip
    self.session, self.options, self.max_tokens, self.stop = session, options, max_tokens, stop
    self.out, self.quiet = out or sys.stdout, quiet
    self.messages: list[dict[str, str]] = []
    self.reset(system)

  def reset(self, system: str | None = None) -> None:
    """Forgets all messages; the conversation begins with `system` if that is given."""
    self.messages = [{"role": "system", "content": system}] if system else []

  @property
  def system(self) -> str | None:
    """The system message, if there is one."""
    first = self.messages[:1]
    return first[0]["content"] if first and first[0]["role"] == "system" else None

  def ask(self, text: str, stoppable: bool = True) -> Generation:
    """Writes the answer to `text`. Ctrl-C stops that, if it is `stoppable`, and otherwise is a KeyboardInterrupt.

    Raises ChatTemplateError, or ContextExceeded where the conversation has become too long; it is as before then.
    """
    messages = [*self.messages, {"role": "user", "content": text}]
    with interrupts() if stoppable else nullcontext(()) as interrupted:
      request = Request(self.session.prompt(messages), self.options, self.max_tokens, self.stop)
      generation = self.session.engine.submit(request)
      answer = write_answer(self.session, generation, self.out, interrupted)
    print(file=self.out, flush=True)
    if generation.error is not None:
      raise generation.error
    if not generation.generated:
      self._say("stopped before the answer began: the question is forgotten")
      return generation
    self.messages = [*messages, {"role": "assistant", "content": answer}]
    if not self.quiet:
      print(figures(generation), file=sys.stderr)
    return generation

  def command(self, line: str) -> bool:
    """Does what a line that begins with "/" says. False if that is to leave."""
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    if name in ("/exit", "/quit", "/bye"):
      return False
    if name == "/reset":
      self.reset(self.system)
      self._say("forgotten")
    elif name == "/system":
      self.reset(rest)
      self._say("a new conversation")
    elif name in ("/save", "/load") and not rest:
      print(f"{name} FILE: which file?", file=sys.stderr)
    elif name == "/save":
      _file(rest).write_text(json.dumps(self.messages, ensure_ascii=False, indent=2) + "\n", "utf-8")
      self._say(f"{counted(len(self.messages), 'message')} in {rest}")
    elif name == "/load":
      self.messages = _messages(_file(rest))
      self._say(counted(len(self.messages), "message"))
    else:
      unknown = f"there is no command {name} (a message that begins with / needs a space before it):\n"
      print(HELP if name == "/help" else unknown + HELP, file=sys.stderr)
    return True

  def _say(self, text: str) -> None:
    if not self.quiet:
      print(f"({text})", file=sys.stderr)


def chat(conversation: Conversation) -> None:
  """Reads lines and answers them until the end of the input. A line that begins with "/" is a command; three quotation
  marks begin and end a message of several lines."""
  try:
    import readline  # noqa: F401  # lines can be edited, and come back with the arrow keys
  except ImportError:  # Windows has that without
    pass
  if isinstance(sys.stdin, io.TextIOWrapper):
    sys.stdin.reconfigure(errors="replace")  # bytes that are no text must not end the conversation
  print("Ctrl-C stops an answer, Ctrl-D leaves, /help lists commands", file=sys.stderr)
  told = False
  while True:
    try:
      line = _read_message()
      told = False
      if not line.strip():
        continue
      if not line.startswith("/"):
        conversation.ask(line)
      elif not conversation.command(line.strip()):
        return
    except KeyboardInterrupt:
      if told:
        raise
      told = True
      print("\n(Ctrl-C once more leaves, as Ctrl-D and /exit do)", file=sys.stderr)
    except EOFError:
      print(file=sys.stderr)
      return
    except ContextExceeded as error:
      print(f"{error}: /reset begins anew, and --context at the start gives more room", file=sys.stderr)
    except BrokenPipeError:  # nobody reads what is answered
      raise
    except (ChatTemplateError, ValueError, OSError, MemoryError, BackendError) as error:
      print(plain(error), file=sys.stderr)


def _read_message() -> str:
  with _ended_in_order():
    line = input(">>> ")
    if not line.startswith('"""'):
      return line
    lines = [line[3:]]
    while not lines[-1].rstrip().endswith('"""'):
      lines.append(input("... "))
    return "\n".join(lines).rstrip()[:-3]


@contextmanager
def _ended_in_order() -> Iterator[None]:
  """What asks the program to end raises SystemExit: a terminal in which a line is edited shows nothing that is typed,
  and stays so after a program that is simply ended."""

  def end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)

  before = [(number, signal.signal(number, end)) for number in ENDING]
  try:
    yield
  finally:
    for number, handler in before:
      signal.signal(number, handler)


def _file(name: str) -> Path:
  try:
    return Path(name).expanduser()
  except RuntimeError:
    raise ValueError(f"{name}: there is no such folder of a user") from None


def plain(error: BaseException, less: str = "--context") -> str:
  """What went wrong, in words: with the name of the file, and without the number of the error. `less`: the options of
  which smaller values take less memory."""
  if isinstance(error, OSError) and error.strerror:
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
  if isinstance(error, MemoryError | OutOfMemory):
    return f"{str(error) or 'not enough memory'}. A smaller {less} takes less"
  return str(error)


def counted(number: int, what: str) -> str:
  """`1 token`, `2 tokens`."""
  return f"{number} {what}{'' if number == 1 else 's'}"


def _messages(path: Path) -> list[dict[str, str]]:
  try:
    messages = json.loads(path.read_text("utf-8"))
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path} is no JSON: {error}") from None
  fine = isinstance(messages, list) and all(
    isinstance(message, dict) and message.keys() == {"role", "content"} and isinstance(message["content"], str)
    and message["role"] in ("system", "user", "assistant") for message in messages
  )  # fmt: skip
  if not fine:
    raise ValueError(f"{path}: expected a list of messages with role and content, as /save writes them")
  return list(messages)


def write_answer(session: Session, generation: Generation, out: TextIO, interrupted: Sequence[int] = ()) -> str:
  """Writes an answer as it comes, and gives it back. It ends when `interrupted` (`interrupts`) has something."""
  parts: list[str] = []
  with ExitStack() as stack:
    while generation.finish is None:
      if interrupted:
        session.engine.cancel(generation)
      else:
        session.engine.step()
      for piece in generation.take():
        if not parts and out.isatty():
          stack.enter_context(Context(PROGRESS=0))  # what shows that kernels are compiled would write over the answer
        parts.append(piece.text)
        out.write(shown(piece.text) if out.isatty() else piece.text)
      out.flush()
  return "".join(parts)


@contextmanager
def interrupts() -> Iterator[list[int]]:
  """Ctrl-C puts something into the list instead of raising KeyboardInterrupt, which could come in the middle of a step
  of the model. The second is told what the third does: it ends the program, even if a step never ends."""
  came: list[int] = []

  def note(number: int, frame: FrameType | None) -> None:
    came.append(number)
    if len(came) == 2:
      os.write(2, b"\n(it stops after this step; Ctrl-C once more ends the program)\n")
    if len(came) > 2:
      raise SystemExit(130)

  try:
    before = signal.signal(signal.SIGINT, note)
  except ValueError:  # in a thread, which gets no signals
    yield came
    return
  try:
    yield came
  finally:
    signal.signal(signal.SIGINT, before)


def shown(text: str) -> str:
  """`text` without what would control the terminal."""
  return "".join(letter for letter in text if letter in "\n\t" or not _controls(letter))


def _controls(letter: str) -> bool:
  return ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0


def figures(generation: Generation) -> str:
  """How fast an answer was, in a line."""
  count, prompt, most = len(generation.generated), len(generation.prompt), generation.request.max_tokens
  first = generation.first_token or generation.ended
  rate = f", {(count - 1) / (generation.ended - first):.1f} tokens/s" if count > 1 and generation.ended > first else ""
  guessed = f", {generation.accepted} of {generation.drafted} guesses right" if generation.drafted else ""
  full = generation.finish == "length" and (most is None or count < most)
  return (
    f"[prompt {counted(prompt, 'token')}, {generation.cached} of them cached; first token after "
    f"{first - generation.submitted:.2f} s; answer {counted(count, 'token')}{rate}{guessed}; "
    f"{'the context is full' if full else generation.finish}]"
  )
