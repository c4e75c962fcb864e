"""`python -m tiny_llm chat MODEL`: talk to a model, let it go on with a text, measure it, serve it."""

from __future__ import annotations

import argparse
import errno
import io
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tiny_llm.bench import bench_model
from tiny_llm.cache import CACHE_TYPES
from tiny_llm.chat import Conversation, chat, figures, plain, write_answer
from tiny_llm.files.checkpoint import Checkpoint, open_checkpoint
from tiny_llm.generate import ContextExceeded, Request
from tiny_llm.model import Chunk
from tiny_llm.sampling import BOUNDS, range_of
from tiny_llm.session import Session, find_model, shows_progress, text_of
from tiny_llm.text.template import ChatTemplateError
from tiny_tensor import BackendError
from tiny_uop import EnvironmentVariable

Arguments = argparse.Namespace
API_KEY = EnvironmentVariable("TINY_LLM_API_KEY", "key that `python -m tiny_llm serve` asks for")


def run_chat(args: Arguments) -> int:
  """A conversation in the terminal; of what comes through a pipe, one answer."""
  piped = sys.stdin is None or not sys.stdin.isatty()
  text = standard_input() if piped else ""
  if piped and not text.strip():
    raise ValueError("standard input is empty: expected a message")
  session = _session(args)
  conversation = Conversation(
    session, session.options(_sampling(args)), system=args.system, max_tokens=args.max_tokens, stop=tuple(args.stop),
    quiet=args.quiet,
  )  # fmt: skip
  if piped:
    conversation.ask(text.removesuffix("\n"), stoppable=False)
  else:
    session.prompt([{"role": "user", "content": "x"}])  # a model without a template is told before the first question
    session.warm(args.quiet)
    chat(conversation)
  session.close()
  return 0


def run_generate(args: Arguments) -> int:
  """A text goes on: `--prompt`, or standard input."""
  text = args.prompt if args.prompt is not None else standard_input().removesuffix("\n")
  session = _session(args)
  tokens = session.tokenizer.encode(text, parse_special=args.special)
  request = Request(
    tokens, session.options(_sampling(args)), args.max_tokens, tuple(args.stop), ignore_ends=args.ignore_eos,
    special=args.special,
  )  # fmt: skip
  generation = session.engine.submit(request)
  if args.echo:
    print(text, end="")
  write_answer(session, generation, sys.stdout)
  if generation.error is not None:
    raise generation.error
  print(flush=True)
  if not args.quiet:
    print(figures(generation), file=sys.stderr)
  session.close()
  return 0


def run_embed(args: Arguments) -> int:
  """The embedding of a text, as JSON: of the model's states after its last norm the mean, or what the file says, of
  length 1."""
  text = args.text if args.text is not None else standard_input().removesuffix("\n")
  session = _session(args)
  print(json.dumps(session.embed(text)))
  session.close()
  return 0


def run_perplexity(args: Arguments) -> int:
  """How well a model foretells a text. As llama.cpp does it: windows of `--context` tokens, of which the second halves
  count, so that every token that counts has half a window before it."""
  text = decoded(Path(args.file).read_bytes(), args.file)
  session = _session(args)
  model, tokenizer = session.engine.model, session.tokenizer
  tokens = tokenizer.encode(text)
  size = model.context
  if len(tokens) < size:
    raise ValueError(f"{args.file} has {len(tokens)} tokens: expected {size} at least, which is the context")
  losses: list[float] = []
  shows = shows_progress(args.quiet)
  for start in range(0, len(tokens) - size + 1, size):
    window = tokens[start : start + size]
    if tokenizer.add_bos and tokenizer.bos is not None:
      window = [tokenizer.bos, *window[1:]]
    losses += _losses(model.step, window, size // 2)
    if shows:
      print(f"\r{start + size} of {len(tokens)} tokens: {math.exp(np.mean(losses)):.4f}  ", end="", file=sys.stderr)
  if shows:
    print(file=sys.stderr)
  mean, error = float(np.mean(losses)), float(np.std(losses)) / math.sqrt(len(losses))
  value = math.exp(mean)
  found = {"perplexity": value, "error": value * error, "tokens": len(losses), "context": size}
  print(json.dumps(found) if args.json else f"perplexity {value:.4f} ± {value * error:.4f} ({len(losses)} tokens)")
  session.close()
  return 0


def run_bench(args: Arguments) -> int:
  """How fast a model is, what memory would allow, and with `--against llama-cpp` how fast llama.cpp is. All are
  measured by turns; a figure is the best slice."""
  if args.position is not None and args.slots == 1:
    raise ValueError("--position says where several slots are measured: expected --slots of 2 at least")
  threads = args.threads if args.against else None
  found = bench_model(
    args.path, prompt=args.prompt, slices=args.slices, exact=args.exact, cache_type=args.cache_type,
    threads=threads, processor=args.processor, slots=args.slots, position=args.position,
  )  # fmt: skip
  if args.json:
    print(json.dumps(found))
    return 0
  print(f"prefill {found['prefill']:.0f} tokens/s, decode {found['decode']:.1f} tokens/s")
  print(
    f"decode is {found['of_floor']:.2f} of {found['floor']:.0f} tokens/s, at which weights alone would be read at "
    f"{found['gigabytes_per_second']:.1f} GB/s"
  )
  if args.slots > 1:
    print(
      f"{args.slots} slots decode {found['slots_decode']:.1f} tokens/s, {found['slots_ratio']:.2f} times the "
      f"{found['slot_decode']:.1f} of one; reading memory allows {found['slots_floor']:.2f} times"
    )
  print(f"loaded after {found['load']:.2f} s, first token after {found['first_token']:.2f} s")
  if args.against:
    print(f"llama.cpp: prefill {found['llama_prefill']:.0f}, decode {found['llama_decode']:.1f} tokens/s")
    print(f"this / llama.cpp: prefill {found['prefill_ratio']:.2f}, decode {found['decode_ratio']:.2f}")
  return 0


def _losses(step: Callable[..., list[memoryview[float]]], window: list[int], first: int) -> list[float]:
  """-log p of the tokens of a window from `first` on. The logits of 128 tokens at a time: all would be large."""
  if first > 1:
    step([Chunk(0, 0, window[: first - 1])])
  losses: list[float] = []
  for at in range(first - 1, len(window) - 1, 128):
    read = window[at : min(at + 128, len(window) - 1)]
    (result,) = step([Chunk(0, at, read)], all_logits=True)
    logits = np.asarray(result).astype(np.float64).reshape(len(read), -1)
    logits -= logits.max(-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
    losses += (-logits[np.arange(len(read)), window[at + 1 : at + 1 + len(read)]]).tolist()
  return losses


def run_serve(args: Arguments) -> int:
  """An HTTP server with OpenAI's API, and a page to chat at its root. Needs `pip install tiny-llm[server]`."""
  try:
    from tiny_llm.server import listen, serve
  except ImportError as error:
    raise ValueError(f"{error}: the server needs `pip install tiny-llm[server]`") from None
  sockets = listen(args.host, args.port)  # before the model is loaded: that takes long, and may be for nothing
  session = _session(args)
  session.warm(args.quiet)
  try:
    serve(
      session, sockets, host=args.host, api_key=args.api_key or API_KEY.get() or None, origins=args.cors_origin,
      queue=args.queue, quiet=args.quiet,
    )  # fmt: skip
  finally:
    session.close()
  return 0


def run_tokenize(args: Arguments) -> int:
  """The tokens of a text."""
  tokenizer, _ = text_of(open_checkpoint(args.path))
  text = args.text if args.text is not None else standard_input()
  tokens = tokenizer.encode(text, add_special=not args.no_special, parse_special=args.special)
  if args.json:
    pieces = [tokenizer.piece(token, special=True).decode("utf-8", "replace") for token in tokens]
    print(json.dumps({"tokens": tokens, "pieces": pieces}, ensure_ascii=False))
  else:
    for token in tokens:
      print(f"{token:8d}  {tokenizer.piece(token, special=True)!r:.100}")
  return 0


def run_info(args: Arguments) -> int:
  """What a file holds, and the memory it will need."""
  found = info_of(open_checkpoint(args.path), args.context, args.cache_type)
  if args.json:
    print(json.dumps(found))
    return 0
  for name, value in found.items():
    if isinstance(value, dict):
      names = {key: key if name == "quantisation" else key.replace("_", " ") for key in value}
      value = ", ".join(f"{names[key]} {_amount(name, item)}" for key, item in value.items())
    if value != "":
      print(f"{name.replace('_', ' '):16s} {_amount(name, value)}")
  return 0


def _amount(name: str, value: Any) -> str:
  """A value of `info_of` for people."""
  if name in ("memory", "quantisation") and isinstance(value, int):
    return f"{value / 1e6:,.1f} MB"
  if isinstance(value, bool):
    return "yes" if value else "no"
  return f"{value / 1e6:,.1f} M" if name == "parameters" else str(value)


def info_of(checkpoint: Checkpoint, context: int | None = None, cache_type: str = "f16") -> dict[str, Any]:
  """What `info` prints; amounts of memory are bytes. It is at least that of the weights as they are in the file, and of
  keys and values as `cache_type` for `context` tokens; some weights are held in a second form for products."""
  from tiny_llm.architectures import ARCHITECTURES

  metadata, arch = checkpoint.metadata, checkpoint.text("general.architecture")
  parameters = sum(math.prod(blocks.shape) for blocks in checkpoint.tensors.values())
  kinds: Counter[str] = Counter()
  for blocks in checkpoint.tensors.values():
    kinds[blocks.format.name] += int(blocks.data.nbytes())
  trained = checkpoint.integer(f"{arch}.context_length", 0)
  length = context or min(trained, 4096)
  found = {
    "file": str(checkpoint.path),
    "name": str(metadata.get("general.name", "")),
    "architecture": arch if arch in ARCHITECTURES else f"{arch} (not known here: it cannot be loaded)",
    "parameters": parameters,
    "context": {"trained": trained, "reserved": length},
    "quantisation": dict(kinds.most_common()),
    "tokenizer": f"{metadata.get('tokenizer.ggml.model')} {metadata.get('tokenizer.ggml.pre', '')}".strip(),
    "chat_template": isinstance(metadata.get("tokenizer.chat_template"), str),
  }
  if arch in ARCHITECTURES:
    from tiny_llm.architectures import config_of

    config = config_of(checkpoint)
    cache = int(CACHE_TYPES[cache_type] * 2 * config.layers * config.kv_heads * config.head_dim * length / 8)
    found["sizes"] = {
      "layers": config.layers, "dim": config.dim, "heads": config.heads, "kv_heads": config.kv_heads,
      "vocabulary": config.vocabulary,
    }  # fmt: skip
    weights = checkpoint.nbytes()
    found["memory"] = {"at_least": weights + cache, "weights": weights, "keys_and_values": cache}
  return found


def _path(args: Arguments) -> Path:
  if args.model is None and args.name is None and args.url is None:
    if getattr(args, "file", None) is not None:
      raise ValueError(f"one file, {args.file}: expected a model, and then the text that it foretells")
    raise ValueError("no model: give the path of a GGUF file, a name (--model), or where to fetch one (--url)")
  if None not in (args.model, args.name):
    raise ValueError(f"two models: {args.name}, and --model {args.model}: expected one")
  return find_model(args.model or args.name or "", args.models and Path(args.models), args.url)


def _session(args: Arguments) -> Session:
  return Session(
    args.path, context=args.context, slots=getattr(args, "slots", 1), speculate=getattr(args, "speculate", 0),
    exact=args.exact, cache_type=args.cache_type, quiet=args.quiet,
  )  # fmt: skip


SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "seed")


def _sampling(args: Arguments) -> dict[str, Any]:
  return {name: getattr(args, name) for name in SAMPLING}


def standard_input() -> str:
  """All of standard input. Raises ValueError where it is closed, or no UTF-8."""
  if sys.stdin is None:
    raise ValueError("standard input is closed: expected a text there, or as an argument (--help)")
  if sys.stdin.isatty():
    print("the text, and then Ctrl-D on a line of its own:", file=sys.stderr)
  bytes_of = getattr(sys.stdin, "buffer", None)
  return sys.stdin.read() if bytes_of is None else decoded(bytes_of.read(), "standard input")


def decoded(data: bytes, name: str) -> str:
  """The text of a file. Raises ValueError for what is no UTF-8."""
  try:
    return data.decode("utf-8-sig").replace("\r\n", "\n")
  except UnicodeDecodeError as error:
    raise ValueError(
      f"{name} is no UTF-8: byte {error.start} is {data[error.start]:#04x}. Convert it, with iconv for example"
    ) from None


def within(kind: type[int] | type[float], low: float, high: float = math.inf) -> Callable[[str], float]:
  """The `type` of an argument that is a number of a range."""

  def read(text: str) -> float:
    try:
      value = kind(text)
    except ValueError:
      value = math.nan
    if not low <= value <= high:
      raise argparse.ArgumentTypeError(f"{text!r:.40} is not {range_of(kind, low, high)}")
    return value

  return read


def _stop_text(text: str) -> str:
  if not text:
    raise argparse.ArgumentTypeError("the text is empty: every answer would end before it begins")
  return text


class Parser(argparse.ArgumentParser):
  """A command line that says what is wrong in a line, instead of all that there is."""

  def error(self, message: str) -> NoReturn:
    self.exit(2, f"{self.prog}: {message} (--help says what there is)\n")


class Command(Parser):
  """What follows the name of a command; options may also stand between MODEL and FILE."""

  _intermixed = False

  def parse_known_args(  # type: ignore[override]
    self, args: Sequence[str] | None = None, namespace: Arguments | None = None
  ) -> tuple[Arguments, list[str]]:
    if self._intermixed:  # which asks this again, for options and for the rest
      return super().parse_known_args(args, namespace)
    self._intermixed = True
    return self.parse_known_intermixed_args(args, namespace)


def parser() -> Parser:
  """The command line."""
  what = "Local language models. Without a command it is chat; `COMMAND --help` says what a command takes."
  lines = partial(argparse.HelpFormatter, max_help_position=30)
  made = Parser(prog="python -m tiny_llm", description=what, formatter_class=lines)
  commands = made.add_subparsers(metavar="COMMAND [MODEL]", required=True, parser_class=Command)
  for name, (run, help, arguments) in COMMANDS.items():
    sub = commands.add_parser(name, help=help, description=run.__doc__, formatter_class=lines)
    sub.set_defaults(run=run)
    sub.add_argument("name", nargs="?", metavar="MODEL", help="a GGUF file, or the name of one in the folder of models")
    sub.add_argument("--model", "-m", help="the same")
    sub.add_argument("--models", metavar="FOLDER", help="where names are looked up: TINY_LLM_MODELS, or ~/models")
    sub.add_argument("--url", help="fetch the file from there into that folder, unless it has it")
    what, least = "tokens of prompt and answer together (as many as the model was trained for, 4096 at most)", 1
    if name == "perplexity":
      what, least = "tokens of a window (512)", 2  # of which one is foretold
    if name not in ("bench", "tokenize"):  # which reserve what they need, or nothing
      sub.add_argument("--context", "-c", type=within(int, least), metavar="N", help=what)
    arguments(sub)
  return made


def _of_cache(sub: Parser) -> None:
  sub.add_argument("--cache-type", choices=CACHE_TYPES, default="f16", help="of keys and values (f16)")


def _of_loaded(sub: Parser) -> None:
  _of_cache(sub)
  sub.add_argument("--exact", action="store_true", help="products in float32, not in integers")
  sub.add_argument("--quiet", "-q", action="store_true", help="nothing on standard error")


def _of_answers(sub: Parser) -> None:
  _of_loaded(sub)
  sub.add_argument("--max-tokens", "-n", type=within(int, 1), metavar="N", help="of an answer at most")
  what = "an answer ends before it; repeatable"
  sub.add_argument("--stop", action="append", default=[], type=_stop_text, metavar="TEXT", help=what)
  _of_guesses(sub)
  for name in SAMPLING:
    sub.add_argument(f"--{name.replace('_', '-')}", type=within(*BOUNDS[name]), metavar="N", help=HELP[name])


def _of_guesses(sub: Parser) -> None:
  what = "guess N tokens ahead from the text so far"
  sub.add_argument("--speculate", type=within(int, 0), default=0, metavar="N", help=what)


def _of_chat(sub: Parser) -> None:
  sub.add_argument("--system", help="system message")
  _of_answers(sub)


def _of_generate(sub: Parser) -> None:
  sub.add_argument("--prompt", "-p", help="the text; standard input without it")
  sub.add_argument("--special", action="store_true", help="control tokens in the text count, and are shown")
  sub.add_argument("--ignore-eos", action="store_true", help="go on after tokens that end an answer")
  sub.add_argument("--echo", action="store_true", help="print the prompt as well")
  _of_answers(sub)


def _of_perplexity(sub: Parser) -> None:
  sub.add_argument("file", metavar="FILE", help="a text, UTF-8")
  sub.add_argument("--json", action="store_true")
  sub.set_defaults(context=512)
  _of_loaded(sub)


def _of_bench(sub: Parser) -> None:
  count = within(int, 1)
  sub.add_argument("--prompt", type=count, default=128, metavar="N", help="tokens of the prompt (128)")
  what = "also so many slots at once, against one of them (1: not)"
  sub.add_argument("--slots", type=count, default=1, metavar="N", help=what)
  what = "tokens that each slot has read (as many as the prompt)"
  sub.add_argument("--position", type=within(int, 0), metavar="N", help=what)
  sub.add_argument("--slices", type=count, default=8, metavar="N", help="how often each is measured (8)")
  sub.add_argument("--processor", action="store_true", help="processor time of all threads: for busy machines")
  sub.add_argument("--against", choices=("llama-cpp",), help="measure it beside this (the extra `bench`)")
  what = "of llama.cpp (2); CPU_COUNT says how many are used here"
  sub.add_argument("--threads", type=count, default=2, metavar="N", help=what)
  sub.add_argument("--json", action="store_true")
  _of_loaded(sub)


def _of_embed(sub: Parser) -> None:
  sub.add_argument("--text", "-p", help="the text; standard input without it")
  _of_loaded(sub)


def _of_serve(sub: Parser) -> None:
  sub.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1)")
  sub.add_argument("--port", type=within(int, 0, 65535), default=8080, help="port (8080); 0: any that is free")
  sub.add_argument("--api-key", help="asked of everyone; better in TINY_LLM_API_KEY, as others see command lines")
  sub.add_argument(
    "--cors-origin", action="append", default=[], metavar="URL", help="of pages that may ask; repeatable"
  )
  what = "requests that are answered at once (4)"
  sub.add_argument("--slots", type=within(int, 1), default=4, metavar="N", help=what)
  what = "requests that may wait; more get 503 (64)"
  sub.add_argument("--queue", type=within(int, 0), default=64, metavar="N", help=what)
  _of_guesses(sub)
  _of_loaded(sub)


def _of_tokenize(sub: Parser) -> None:
  sub.add_argument("--text", "-p", help="the text; standard input without it")
  sub.add_argument("--special", action="store_true", help="control tokens in the text count")
  sub.add_argument("--no-special", action="store_true", help="none are added around the text")
  sub.add_argument("--json", action="store_true")


def _of_info(sub: Parser) -> None:
  _of_cache(sub)
  sub.add_argument("--json", action="store_true")


COMMANDS: dict[str, tuple[Callable[[Arguments], int], str, Callable[[Parser], None]]] = {
  "chat": (run_chat, "talk to a model", _of_chat),
  "generate": (run_generate, "let a model go on with a text", _of_generate),
  "perplexity": (run_perplexity, "how well a model foretells a text", _of_perplexity),
  "bench": (run_bench, "how fast a model is", _of_bench),
  "embed": (run_embed, "the embedding of a text", _of_embed),
  "serve": (run_serve, "serve a model over HTTP", _of_serve),
  "tokenize": (run_tokenize, "the tokens of a text", _of_tokenize),
  "info": (run_info, "what a file holds, and the memory it will need", _of_info),
}
"""Name → what it runs, says of itself, and takes."""
HELP = {
  "temperature": "0: always the likeliest token (0.8)",
  "top_k": "of so many tokens, 0 for all (40)",
  "top_p": "of the likeliest that have this probability together (0.95)",
  "min_p": "of those at least this probable, as a share of the likeliest (0.05)",
  "repeat_penalty": "divides the logits of the last 64 tokens (1: not)",
  "presence_penalty": "subtracted for tokens that the answer has (0)",
  "frequency_penalty": "subtracted for each time the answer has it (0)",
  "seed": "the same answer each time",
}


def main(argv: Sequence[str] | None = None) -> int:
  """Runs a command line. Without a command it is `chat`. The result is the exit status: 1 for what went wrong, which is
  said on standard error, 2 (SystemExit) for a wrong command line; 130 after Ctrl-C."""
  line = list(sys.argv[1:] if argv is None else argv)
  if not line or (line[0].startswith("-") and line[0] not in ("-h", "--help")) or Path(line[0]).exists():
    line.insert(0, "chat")
  args = parser().parse_args(line)
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:  # closed: what is printed goes nowhere, instead of to the other or into an error
      setattr(sys, name, open(os.devnull, "w"))
  if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="replace")  # letters that a terminal does not have
  try:
    args.path = _path(args)  # before standard input is read
    status: int = args.run(args)
    sys.stdout.flush()
    return status
  except KeyboardInterrupt:
    if sys.stdout.isatty():
      print()  # the answer ended in the middle of a line
    return 130
  except BrokenPipeError:  # `| head`
    _abandon_output()
    return 0
  except (ValueError, OSError, MemoryError, BackendError) as error:
    said = plain(error, "--prompt, --position or --slots" if args.run is run_bench else "--context")
    if isinstance(error, ContextExceeded):
      said += ". A larger --context has more room"
    elif isinstance(error, ChatTemplateError):  # which speaks of the model's
      said = f"{args.path}: {said}"
    print(f"tiny_llm: {said}", file=sys.stderr)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
      _abandon_output()
    return 1


def _abandon_output() -> None:
  """What is still to be written goes nowhere: otherwise the interpreter tries it again at its end, and complains."""
  with open(os.devnull, "wb") as nowhere:
    os.dup2(nowhere.fileno(), sys.stdout.fileno())
