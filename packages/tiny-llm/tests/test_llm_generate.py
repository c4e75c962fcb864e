"""Answers of a small model: alone and several at once, from the beginning and from what a slot holds already."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chat_models import talker, write_talker
from hypothesis import given
from hypothesis import strategies as st

from tiny_llm.generate import ContextExceeded, Engine, Generation, Request, _StopTexts
from tiny_llm.model import Chunk, Model
from tiny_llm.sampling import SamplingOptions
from tiny_llm.session import Session
from tiny_llm.text.tokenizer import Tokenizer

GREEDY = SamplingOptions(temperature=0)
Array = np.ndarray[Any, np.dtype[Any]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, Tokenizer]:
  return talker(write_talker(tmp_path_factory.mktemp("talker") / "talker.gguf"), slots=3)


@pytest.fixture
def engine(models: tuple[Model, Tokenizer]) -> Iterator[Engine]:
  engine = Engine(*models)
  yield engine
  assert not engine.running and not engine.waiting  # no slot is lost, whatever the test did
  assert all(slot.generation is None for slot in engine._slots)


def finish(engine: Engine) -> None:
  """Steps until nothing runs; fails if that does not come."""
  assert any(not engine.step() for _ in range(10_000)), engine.running


def run(engine: Engine, *requests: Request) -> list[Generation]:
  generations = [engine.submit(request) for request in requests]
  finish(engine)
  for generation in generations:
    if generation.error is not None:
      raise generation.error
  return generations


def plain(models: tuple[Model, Tokenizer], tokens: Sequence[int], count: int) -> list[int]:
  """The likeliest tokens, each after reading all of the text anew."""
  model, tokenizer = models
  text = list(tokens)
  while len(text) < len(tokens) + count:
    (logits,) = model.step([Chunk(0, 0, text)])
    text.append(int(np.asarray(logits).argmax()))
    if text[-1] in tokenizer.ends:
      break
  return text[len(tokens) :]


def test_an_answer_is_the_likeliest_text(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  tokens = models[1].encode("Hello world, this is")
  wanted = plain(models, tokens, 12)
  (generation,) = run(engine, Request(tokens, GREEDY, max_tokens=12))
  pieces = generation.take()
  assert generation.generated == wanted
  assert "".join(piece.text for piece in pieces) == models[1].decode(wanted)
  assert [t for piece in pieces for t in piece.tokens] == [t for t in wanted if t not in models[1].ends]
  assert [piece.finish for piece in pieces][:-1] == [None] * (len(pieces) - 1)
  assert pieces[-1].finish == generation.finish == ("length" if len(wanted) == 12 else "stop")
  assert generation.submitted <= generation.started <= generation.first_token <= generation.ended


def test_several_at_once_answer_as_each_alone(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  rng = random.Random(1)
  requests = [
    Request([rng.randrange(4, 1000) for _ in range(rng.randrange(1, 40))], GREEDY, max_tokens=rng.randrange(1, 20))
    for _ in range(8)
  ]
  for request, generation in zip(requests, run(engine, *requests), strict=True):
    assert request.max_tokens is not None
    assert generation.generated == plain(models, request.tokens, request.max_tokens)


@pytest.mark.parametrize("speculate", [1, 4, 15])
def test_guesses_change_nothing(models: tuple[Model, Tokenizer], speculate: int) -> None:
  engine = Engine(*models, speculate=speculate)
  tokens = models[1].encode("one two three one two three one two")
  (generation,) = run(engine, Request(tokens, GREEDY, max_tokens=40))
  assert generation.generated == plain(models, tokens, 40)
  assert 0 <= generation.accepted <= generation.drafted
  for seed in range(3):
    options = SamplingOptions(seed=seed, repeat_penalty=1.2, temperature=0.5)
    a, b = (run(e, Request(tokens, options, max_tokens=30))[0].generated for e in (engine, Engine(*models)))
    assert a == b


def test_guesses_are_accepted_where_the_text_repeats(models: tuple[Model, Tokenizer]) -> None:
  # A bias forces the answer to be one token, again and again.
  options = SamplingOptions(temperature=0, logit_bias={50: 1e3})
  engine = Engine(*models, speculate=7)
  (generation,) = run(engine, Request([50] * 8, options, max_tokens=24))
  assert generation.generated == [50] * 24
  assert generation.accepted == generation.drafted >= 18
  # what was read is what is written
  (again,) = run(engine, Request([50] * 33, GREEDY, max_tokens=1))
  assert again.cached == 31


def test_a_prompt_that_goes_on_reads_only_what_is_new(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  first = list(range(10, 40))
  (one,) = run(engine, Request(first, GREEDY, max_tokens=5))
  assert one.cached == 0
  longer = [*first, *one.generated[:4], 77, 78]
  (two,) = run(engine, Request(longer, GREEDY, max_tokens=5))
  assert two.cached == 34 and two.generated == plain(models, longer, 5)
  (three,) = run(engine, Request(longer, GREEDY, max_tokens=5))
  assert three.cached == len(longer) - 1 and three.generated == two.generated


def test_a_beginning_is_shared_between_slots(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  shared = list(range(100, 150))
  requests = [Request([*shared, 200 + i, 300 + i], GREEDY, max_tokens=6) for i in range(3)]
  generations = run(engine, *requests)
  assert [generation.cached for generation in generations] == [0, 50, 50]  # although all came at once
  for request, generation in zip(requests, generations, strict=True):
    assert generation.generated == plain(models, request.tokens, 6)


def test_another_conversation_does_not_push_out_one_that_goes_on(engine: Engine) -> None:
  long = list(range(10, 70))
  run(engine, Request(long, GREEDY, max_tokens=1))
  run(engine, Request([*long[:20], 5, 6], GREEDY, max_tokens=1))
  (goes_on,) = run(engine, Request([*long, 99], GREEDY, max_tokens=1))
  assert goes_on.cached == 60


def test_stop_texts_end_an_answer_and_are_not_shown(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  tokens = models[1].encode("Hello world")
  (whole,) = run(engine, Request(tokens, GREEDY, max_tokens=20))
  text = "".join(piece.text for piece in whole.take())
  for start in (1, len(text) // 2):
    stop = text[start : start + 4]
    (cut,) = run(engine, Request(tokens, GREEDY, max_tokens=20, stop=(stop, "never there")))
    assert "".join(piece.text for piece in cut.take()) == text[: text.find(stop)]
    assert cut.finish == "stop" and len(cut.generated) <= len(whole.generated)


def test_tokens_that_end_answers(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  options = SamplingOptions(temperature=0, logit_bias={2: 1e4})
  (ended,) = run(engine, Request([40, 41], options, max_tokens=5))
  assert ended.generated == [2] and ended.finish == "stop" and "".join(p.text for p in ended.take()) == ""
  (shown,) = run(engine, Request([40, 41], options, max_tokens=5, special=True))
  assert "".join(p.text for p in shown.take()) == "<|im_end|>"
  (ignored,) = run(engine, Request([40, 41], options, max_tokens=5, ignore_ends=True))
  assert ignored.generated == [2] * 5 and ignored.finish == "length"


def test_the_context_bounds_an_answer(engine: Engine) -> None:
  (full,) = run(engine, Request([40] * 120, SamplingOptions(temperature=0, logit_bias={50: 1e4})))
  assert len(full.generated) == 8 and full.finish == "length"
  with pytest.raises(ContextExceeded, match="128"):
    engine.submit(Request([40] * 128))


@pytest.mark.parametrize(
  ("request_", "says"),
  [
    (Request([]), "no tokens"),
    (Request([10**6]), "none of the model's"),
    (Request([-1]), "none of the model's"),
    (Request([1], max_tokens=0), "max_tokens"),
    (Request([1], SamplingOptions(logit_bias={10**6: 1.0})), "logit_bias"),
  ],
)
def test_requests_that_make_no_sense(engine: Engine, request_: Request, says: str) -> None:
  with pytest.raises(ValueError, match=says):
    engine.submit(request_)


def test_log_probabilities_are_those_of_the_model(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  tokens = [40, 41, 42]
  (generation,) = run(engine, Request(tokens, SamplingOptions(temperature=0.7, seed=1), max_tokens=3, logprobs=4))
  found = [item for piece in generation.take() for item in piece.logprobs]
  assert [item.token for item in found] == generation.generated
  for at, item in enumerate(found):
    (logits,) = models[0].step([Chunk(0, 0, [*tokens, *generation.generated[:at]])])
    values = np.asarray(logits).astype(np.float64)
    values -= np.log(np.exp(values).sum())
    np.testing.assert_allclose(item.logprob, values[item.token], rtol=1e-3, atol=1e-3)
    assert [i for i, _ in item.top] == np.argsort(-values)[:4].tolist()


def test_embeddings_beside_answers(engine: Engine, models: tuple[Model, Tokenizer]) -> None:
  tokens = [[40 + i for i in range(count)] for count in (1, 9, 60, 128)]
  requests = [Request(item, embed=True) for item in tokens]
  generations = run(engine, Request([40, 41], GREEDY, max_tokens=9), *requests)
  assert generations[0].generated == plain(models, [40, 41], 9)
  for item, generation in zip(tokens, generations[1:], strict=True):
    (states,) = models[0].states([Chunk(0, 0, item)])
    mean = np.asarray(states).reshape(len(item), -1).mean(0)
    assert generation.finish == "stop" and generation.embedding is not None and generation.cached == 0
    np.testing.assert_allclose(generation.embedding, mean / np.linalg.norm(mean), rtol=1e-3, atol=1e-4)
  with pytest.raises(ContextExceeded):
    engine.submit(Request([40] * 129, embed=True))


def test_cancelling(engine: Engine) -> None:
  generations = [engine.submit(Request([40 + i], SamplingOptions(seed=1), max_tokens=50)) for i in range(5)]
  for _ in range(4):
    engine.step()
  engine.cancel(generations[0])  # runs
  engine.cancel(generations[4])  # waits
  engine.cancel(generations[4])
  finish(engine)
  assert [g.finish for g in generations] == ["cancelled", *["length"] * 3, "cancelled"] or all(
    g.finish in ("stop", "length") for g in generations[1:4]
  )
  assert generations[0].take()[-1].finish == "cancelled"


def test_an_iterator_that_is_closed_ends_its_answer(engine: Engine) -> None:
  answer = engine.answer(Request([40], SamplingOptions(seed=1), max_tokens=50))
  next(answer)
  assert len(engine.running) == 1
  answer.close()  # type: ignore[attr-defined]
  assert not engine.running


def test_a_failure_of_the_model_ends_those_that_it_hits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
  def fails(chunks: object, *, all_logits: bool = False) -> list[memoryview[float]]:
    raise MemoryError("no memory left")

  with monkeypatch.context() as patch:
    patch.setattr(engine.model, "step", fails)
    with pytest.raises(MemoryError):
      list(engine.answer(Request([40, 41], GREEDY, max_tokens=3)))
  (fine,) = run(engine, Request([40, 41], GREEDY, max_tokens=3))
  assert fine.finish in ("stop", "length") and fine.cached == 0


@given(st.lists(st.text("abc", max_size=4), max_size=12), st.lists(st.text("abc", min_size=1, max_size=4), max_size=3))
def test_text_is_held_back_only_while_a_stop_text_may_begin_in_it(parts: list[str], stops: list[str]) -> None:
  texts, shown, whole = _StopTexts(stops), "", "".join(parts)
  read = ""
  for part in parts:
    if texts.found:
      break
    shown += texts.push(part)
    read += part
    if not texts.found:
      held = read[len(shown) :]
      assert not held or any(stop.startswith(held) for stop in stops)
      assert not any(stop in read for stop in stops)
  if texts.found:
    assert shown == read[: min(place for stop in stops if (place := read.find(stop)) >= 0)]
  else:
    assert shown + texts.end() == whole


def test_what_long_prompts_need_in_between_is_given_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
  """And what short ones need stays: graphs that lose it are made ready anew."""
  freed: list[int] = []
  monkeypatch.setattr(engine.model, "free_intermediates", lambda: freed.append(len(engine.running)))
  monkeypatch.setattr("tiny_llm.generate.LONG", 30)
  run(engine, Request(list(range(5, 34)), GREEDY, 3, ignore_ends=True))
  assert freed == []
  run(engine, Request(list(range(6, 40)), GREEDY, 3, ignore_ends=True))
  assert freed == [1]  # while its answer is made


def test_what_several_requests_need_is_captured_before_they_come(tmp_path: Path) -> None:
  """And changes nothing of what slots hold."""
  model, tokenizer = talker(write_talker(tmp_path / "talker.gguf"), slots=5)
  engine = Engine(model, tokenizer)
  request = Request(list(range(5, 40)), GREEDY, 10, ignore_ends=True)
  (first,) = run(engine, request)
  for rehearse in engine.rehearsals():
    rehearse()
  assert {size for size, read in model._read_together.items() if read.captured is not None} == {1, 2, 4}
  (again,) = run(engine, request)
  assert again.cached == 34 and again.generated == first.generated


def test_a_warm_session_has_captured_what_messages_need(tmp_path: Path) -> None:
  session = Session(write_talker(tmp_path / "talker.gguf"), context=128, quiet=True)
  try:
    session.warm(quiet=True)
    model = session.engine.model
    captured = [name for reads in (model._read, model._read_together) for name, read in reads.items() if read.captured]
    assert captured == [(16, "last"), 1]
  finally:
    session.close()
