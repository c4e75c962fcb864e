"""A model file, ready to talk: found by name, opened, loaded, with its tokenizer, its template and what it
recommends."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiny_llm.files.checkpoint import Checkpoint, open_checkpoint
from tiny_llm.files.folder import is_folder
from tiny_llm.generate import Engine, Request
from tiny_llm.model import FEW, PIECES, Chunk, load_model
from tiny_llm.sampling import SamplingOptions, recommended
from tiny_llm.text.template import ChatTemplate
from tiny_llm.text.tokenizer import Tokenizer, TokenizerError
from tiny_tensor import Context
from tiny_uop import EnvironmentVariable

__all__ = ["Session", "find_model"]

WARM = (1, FEW, 1, FEW, PIECES[0])
"""Tokens that are read before the first question. The second call of a function captures it."""
TERM = EnvironmentVariable("TERM", "kind of the terminal; on one that is `dumb` tiny-llm shows no progress")
MODELS = EnvironmentVariable("TINY_LLM_MODELS", "folder in which tiny-llm looks for models; ~/models if not set")


def models_folder() -> Path:
  return Path(MODELS.get() or "~/models").expanduser()


def find_model(name: str, folder: Path | None = None, url: str | None = None) -> Path:
  """The file or folder of a model: a path; or a name such as `llama3.2:1b`, which is the beginning of the name of one
  in `folder`, letters and digits counting (`Llama-3.2-1B-Instruct-Q4_K_M.gguf`). With `url`, the file is fetched from
  there first, unless the folder has it. Nothing else asks the network.

  Raises FileNotFoundError, which says what there is, for a name that fits none, and ValueError for one that fits
  several.
  """
  folder = models_folder() if folder is None else folder
  if url is not None:
    last = url.rstrip("/").rpartition("/")[2].partition("?")[0]
    target = folder / (last if last.endswith(".gguf") else f"{_letters(name) or 'model'}.gguf")
    if target.is_file():
      return target
    from tiny_tensor import fetch  # late: hardly a program fetches anything

    return fetch(url, target)
  path = Path(name).expanduser()
  if name and (path.is_file() or is_folder(path)):
    return path
  folders = {file.parent for file in folder.glob("**/*.safetensors") if is_folder(file.parent)}
  files = sorted([*folder.glob("**/*.gguf"), *folders])
  if exact := [file for file in files if name in (file.name, called(file))]:
    return exact[0]
  wanted = _letters(name.removesuffix(":latest"))
  found = [file for file in files if wanted and _letters(called(file)).startswith(wanted)]
  if len(found) == 1:
    return found[0]
  if name and path.is_dir():
    there = ", ".join(file.name for file in sorted(path.glob("*.gguf"))) or "no .gguf file"
    raise FileNotFoundError(
      f"{path} is a folder with {there}, and without config.json: expected a GGUF file, or a folder with config.json, "
      "safetensors and tokenizer.json"
    )
  there = ", ".join(file.name for file in found or files) or "nothing"
  if found:
    raise ValueError(f"{name} may be any of {there} in {folder}: say more of the name")
  raise FileNotFoundError(
    f"no model {name}: it is no file, and {folder} has {there}. Put a GGUF file there (TINY_LLM_MODELS is the folder), "
    "or say where to fetch it with --url"
  )


def called(file: Path) -> str:
  """The name of a file without `.gguf`, or of a folder."""
  return file.stem if file.suffix == ".gguf" else file.name


def _letters(name: str) -> str:
  return re.sub(r"[^a-z0-9]", "", name.lower())


class Session:
  """A model that answers. `checkpoint` (without its vocabulary and tensors), `tokenizer`, `engine`; `template` is None
  for models without one; `defaults` are values of `SamplingOptions` that the file recommends.

  `context` None: what the model was trained for, but 4096 at most. `quiet`: nothing on standard error.
  """

  def __init__(
    self, path: Path, *, context: int | None = None, slots: int = 1, speculate: int = 0, exact: bool = False,
    cache_type: str = "f16", quiet: bool = False,
  ) -> None:  # fmt: skip
    self.checkpoint = open_checkpoint(path)
    self.tokenizer, self.template = text_of(self.checkpoint)
    self.checkpoint = self.checkpoint.without_vocabulary()
    self.defaults = recommended(self.checkpoint.metadata)
    size = f"{self.checkpoint.nbytes() / 1e6:,.0f} MB"
    with Waiting(f"loading {self.name} ({size})", quiet) as waiting:
      trained = self.checkpoint.integer(f"{self.checkpoint.text('general.architecture')}.context_length", 4096)
      model = load_model(self.checkpoint, context=context or min(trained, 4096), slots=slots, exact=exact,
        cache_type=cache_type, progress=waiting.show)  # fmt: skip
      self.engine = Engine(model, self.tokenizer, speculate=speculate)
    self.checkpoint = replace(self.checkpoint, tensors={})  # nothing of the file is mapped any more

  @property
  def name(self) -> str:
    """What the model is called: its file without `.gguf`, or its folder."""
    return self.checkpoint.name

  def warm(self, quiet: bool = False) -> None:
    """Compiles what reading a prompt and a token need, so that the first answer need not, and captures what short ones
    need: before that, a message of 40 tokens takes five times as long."""
    model = self.engine.model
    with Waiting("compiling", quiet) as waiting:
      for done, count in enumerate(WARM):
        waiting.show(done / len(WARM))
        if count < model.context:
          read = model.step if model.config.architecture.causal else model.states
          read([Chunk(0, 0, [0] * count)])

  def options(self, values: Mapping[str, Any]) -> SamplingOptions:
    """How tokens are drawn: `values` that are not None, then what the file recommends, then llama.cpp's defaults."""
    return SamplingOptions(**{**self.defaults, **{name: value for name, value in values.items() if value is not None}})

  def prompt(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> list[int]:
    """The tokens of a conversation by the model's template. Raises ChatTemplateError."""
    return self.tokens_of(self.rendered(messages, **variables))

  def rendered(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
    """The text of a conversation by the model's template, for `tokens_of`: what messages and variables say is marked,
    so that it becomes no control token. Raises ChatTemplateError."""
    template = self.template if self.template is not None else ChatTemplate.from_metadata({})
    return template.render([self._as_text(message) for message in messages], **self._as_text(variables))

  def _as_text(self, value: Any) -> Any:
    if isinstance(value, str):
      return self.tokenizer.as_text(value)
    if isinstance(value, Mapping):
      return {self._as_text(key): self._as_text(each) for key, each in value.items()}
    return [self._as_text(each) for each in value] if isinstance(value, list | tuple) else value

  def tokens_of(self, rendered: str) -> list[int]:
    """The tokens of a rendered conversation. Templates write the token that begins a text, or leave it to this."""
    tokens = self.tokenizer.encode(rendered, add_special=False, parse_special=True)
    begin = self.tokenizer.bos
    return tokens if not self.tokenizer.add_bos or begin is None or tokens[:1] == [begin] else [begin, *tokens]

  def embed(self, text: str) -> list[float]:
    """The embedding of a text, of length 1: of the model's states after its last norm the mean, or another as the file
    says. Raises ContextExceeded."""
    generation = self.engine.submit(Request(self.tokenizer.encode(text), embed=True))
    while generation.finish is None:
      self.engine.step()
    if generation.error is not None:
      raise generation.error
    assert generation.embedding is not None
    return [float(number) for number in generation.embedding]

  def close(self) -> None:
    """Ends the process that renders templates."""
    if self.template is not None:
      self.template.close()


def text_of(checkpoint: Checkpoint) -> tuple[Tokenizer, ChatTemplate | None]:
  """The tokenizer of a file, and its template if it has one. Raises TokenizerError, which names the file."""
  path = checkpoint.path
  if path.is_dir():
    path /= "tokenizer.json"
    if "tokenizer.ggml.tokens" not in checkpoint.metadata:
      raise TokenizerError(f"{path} is missing, or empty: expected the tokenizer of the model")
  try:
    tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
  except TokenizerError as error:
    raise TokenizerError(f"{path}: {error}") from None
  special = {"bos_token": tokenizer.text_of(tokenizer.bos), "eos_token": tokenizer.text_of(tokenizer.eos)}
  has = isinstance(checkpoint.metadata.get("tokenizer.chat_template"), str)
  return tokenizer, ChatTemplate.from_metadata(checkpoint.metadata, special) if has else None


def columns() -> int:
  """Letters in a line of the terminal that standard error is; it may change at any time."""
  try:
    return os.get_terminal_size(sys.stderr.fileno()).columns or 80
  except OSError:
    return 80


def bar(share: float, encoding: str | None) -> str:
  """A bar of 20 letters, and the share in percent."""
  full, empty = "█░" if (encoding or "").lower().startswith("utf") else "#-"
  done = min(max(int(share * 20), 0), 20)
  return f"{full * done}{empty * (20 - done)} {share:4.0%}"


def shows_progress(quiet: bool) -> bool:
  """Whether a line of progress is shown on standard error, written anew again and again: in a terminal, and not in a
  dumb one, which cannot take a line away."""
  return not quiet and sys.stderr is not None and sys.stderr.isatty() and TERM.get() != "dumb"


class Waiting:
  """A bar on standard error while a block runs, if that is a terminal, with its seconds; it goes when that is done.

  `show` says which share of the work is done, 0 to 1.
  """

  def __init__(self, what: str, quiet: bool = False) -> None:
    self.what, self._share = what, 0.0
    self._shown = shows_progress(quiet)
    self._done = threading.Event()
    self._alone = Context(PROGRESS=0)  # what shows that kernels are compiled would write into the same line
    self._thread = threading.Thread(target=self._count, daemon=True)

  def __enter__(self) -> Waiting:
    if self._shown:
      self._alone.__enter__()
      self._thread.start()
    return self

  def show(self, share: float) -> None:
    """The share of the work that is done."""
    self._share = share

  def __exit__(self, *_: object) -> None:
    self._done.set()
    if self._shown:
      self._thread.join()
      self._alone.__exit__()
      sys.stderr.write("\r\x1b[K")
      sys.stderr.flush()

  def _count(self) -> None:
    begin = time.monotonic()
    while True:
      line = f"{bar(self._share, sys.stderr.encoding)} {self.what} {time.monotonic() - begin:.1f} s"
      sys.stderr.write(f"\r\x1b[K{line[: columns() - 1]}")  # of a line that is longer, the first would stay
      sys.stderr.flush()
      if self._done.wait(0.2):
        return
