"""A conversation as the text that a model was trained on, by the template in the model's file.

Templates are programs of strangers (CVE-2024-34359), so they run in `tiny_llm.text.template_worker`: another process,
Jinja's sandbox, and limits on time, memory and size.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiny_llm.system import APART
from tiny_uop.locks import shared_lock

MEGABYTES = 512  # of address space for a template
LONGEST = 8 << 20  # characters that a template may write
SECONDS = 10.0  # that it may take; a second is a thousand times what one needs, and the machine may be busy


class ChatTemplateError(ValueError):
  """A template that cannot be rendered, or that refuses the conversation."""


class ChatTemplate:
  """The template `source`. `special` are the texts that it sees as variables, such as `bos_token`.

  The process that renders is started at once, so that it is there when the model has been loaded. `close` ends it, as
  does the end of the program.
  """

  def __init__(self, source: str, special: Mapping[str, str] | None = None, *, seconds: float = SECONDS) -> None:
    if not isinstance(source, str):
      raise ChatTemplateError(f"the chat template is {type(source).__name__}: expected text")
    self.source, self.special, self.seconds = source, dict(special or {}), seconds
    self._lock = shared_lock()
    self._start()

  @classmethod
  def from_metadata(
    cls, metadata: Mapping[str, object], special: Mapping[str, str] | None = None, *, name: str | None = None
  ) -> ChatTemplate:
    """The template of a GGUF file; files may have several, by `name`. Raises ChatTemplateError if there is none."""
    source = metadata.get("tokenizer.chat_template" if name is None else f"tokenizer.chat_template.{name}")
    if not isinstance(source, str):
      raise ChatTemplateError(
        "the file has no chat template (tokenizer.chat_template), so it is no model for conversations: "
        "let it continue a text with `generate`"
      )
    return cls(source, special)

  def render(
    self,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = True,
    **variables: Any,
  ) -> str:
    """The text of a conversation. `messages` have `role` and `content`, `tools` are as in OpenAI's API.
    `add_generation_prompt`: with the beginning of the assistant's answer. Other `variables` (`enable_thinking`) are
    passed on.

    Raises ChatTemplateError where the template is wrong, refuses the messages, or breaks a limit.
    """
    values = {**self.special, "messages": list(messages), "add_generation_prompt": add_generation_prompt, **variables}
    if tools:
      values["tools"] = list(tools)
    try:
      request = json.dumps({"source": self.source, "variables": values})
    except (TypeError, ValueError, RecursionError) as error:
      raise ChatTemplateError(f"the messages are no JSON: {error}") from None
    answer = self._ask(request)
    if "refused" in answer:
      raise ChatTemplateError(f"the model's chat template refuses the messages: {answer['refused']}")
    if "error" in answer:
      raise ChatTemplateError(f"the model's chat template cannot be rendered: {answer['error']}")
    return str(answer["text"])

  def close(self) -> None:
    """Ends the process that renders."""
    self._end()

  def _start(self) -> None:
    command = [sys.executable, "-P", str(Path(__file__).with_name("template_worker.py")), str(MEGABYTES), str(LONGEST)]
    self._process = subprocess.Popen(
      command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8",
      **APART,  # Ctrl-C in the terminal stops an answer, not this
    )  # fmt: skip
    self._end = weakref.finalize(self, _ended, self._process)

  def _ask(self, request: str) -> dict[str, Any]:
    """One line to the process and one back. It is started anew after it has been ended for what it did."""
    with self._lock:
      if self._process.poll() is not None:
        self._end()
        self._start()
      late = threading.Event()

      def end() -> None:
        late.set()
        self._process.kill()

      timer = threading.Timer(self.seconds, end)
      timer.daemon = True
      timer.start()
      try:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
      except OSError:
        line = ""
      except BaseException:  # Ctrl-C: the next one that asks must not get this answer
        self._end()
        raise
      finally:
        timer.cancel()
      if line.endswith("\n"):
        answer: dict[str, Any] = json.loads(line)
        return answer
      self._end()
    return {"error": f"it takes longer than {self.seconds:g} s" if late.is_set() else "its process ended"}


def _ended(process: subprocess.Popen[str]) -> None:
  process.kill()
  process.wait()
  for pipe in (process.stdin, process.stdout):
    if pipe is not None:
      try:
        pipe.close()
      except OSError:  # what was not written when it ended
        pass
