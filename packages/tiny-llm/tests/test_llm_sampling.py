"""Sampling against its definition, written plainly."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_llm.sampling import Sampler, SamplingOptions, logprob_of, recommended

Array = np.ndarray[Any, np.dtype[Any]]


def distribution(logits: Array, options: SamplingOptions, prompt: list[int], answer: list[int]) -> dict[int, float]:
  """The probability of each token that may be drawn: bias, penalties, top_k, top_p, min_p, temperature."""
  values = {i: float(x) for i, x in enumerate(logits)}
  for token, bias in options.logit_bias.items():
    values[token] += bias
  text = prompt + answer
  last = len(text) if options.repeat_last_n < 0 else options.repeat_last_n
  for token in set(text[max(len(text) - last, 0) :]):
    values[token] *= options.repeat_penalty if values[token] <= 0 else 1 / options.repeat_penalty
  for token, count in Counter(answer).items():
    values[token] -= options.presence_penalty + count * options.frequency_penalty
  ranked = sorted(values, key=lambda i: -values[i])
  if options.temperature == 0:
    return {ranked[0]: 1.0}
  ranked = ranked[: options.top_k or None]
  shares = {i: math.exp(values[i] - values[ranked[0]]) for i in ranked}
  total, sum_so_far = sum(shares.values()), 0.0
  kept: list[int] = []
  for token in ranked:
    if kept and (sum_so_far >= options.top_p * total or shares[token] < options.min_p):
      break
    kept.append(token)
    sum_so_far += shares[token]
  weights = {i: math.exp((values[i] - values[ranked[0]]) / options.temperature) for i in kept}
  return {i: weight / sum(weights.values()) for i, weight in weights.items()}


settings = st.fixed_dictionaries(
  {
    "temperature": st.sampled_from([0, 0.3, 1.0, 2.5]),
    "top_k": st.sampled_from([0, 1, 3, 1000]),
    "top_p": st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    "min_p": st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    "repeat_penalty": st.sampled_from([1.0, 1.3]),
    "repeat_last_n": st.sampled_from([0, 2, 64, -1]),
    "presence_penalty": st.sampled_from([0.0, 0.7]),
    "frequency_penalty": st.sampled_from([0.0, 0.4, -0.3]),
    "logit_bias": st.sampled_from([{}, {3: 2.5, 5: -math.inf}]),
  }
)


texts = st.lists(st.integers(0, 11), max_size=6)


@given(settings, st.integers(0, 1 << 30), texts, texts)
def test_draws_are_those_of_the_definition(
  made: dict[str, Any], seed: int, prompt: list[int], answer: list[int]
) -> None:
  options = SamplingOptions(**made, seed=seed)
  logits = np.random.default_rng(seed).permutation(np.linspace(-4, 4, 12)).astype(np.float32)
  sampler = Sampler(options, prompt)
  for token in answer:
    sampler.accept(token)
  wanted = distribution(logits, options, prompt, answer)
  if options.top_k == 1 or options.temperature == 0:
    assert sampler.sample(logits) == next(iter(wanted))
    return
  tokens, values = sampler._kept(sampler._adjusted(logits, None))
  weights = np.exp((values - values[0]) / options.temperature)
  found = dict(zip(tokens.tolist(), (weights / weights.sum()).tolist(), strict=True))
  assert found.keys() == wanted.keys()
  assert all(math.isclose(found[i], wanted[i], rel_tol=1e-5) for i in wanted)
  assert {sampler.sample(logits) for _ in range(50)} <= wanted.keys()


def test_frequencies_are_the_probabilities() -> None:
  logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
  sampler = Sampler(SamplingOptions(temperature=1, top_k=0, top_p=1, min_p=0, seed=1))
  counts = Counter(sampler.sample(logits) for _ in range(20_000))
  for token, share in enumerate([0.5, 0.3, 0.15, 0.05]):
    assert abs(counts[token] / 20_000 - share) < 4 * math.sqrt(share * (1 - share) / 20_000)


def test_a_seed_gives_the_same_tokens() -> None:
  logits = np.random.default_rng(0).normal(size=1000).astype(np.float32)

  def tokens(seed: int | None) -> list[int]:
    sampler = Sampler(SamplingOptions(seed=seed, top_k=0, temperature=2))
    return [sampler.sample(logits) for _ in range(20)]

  assert tokens(7) == tokens(7) and tokens(7) != tokens(8) and tokens(None) != tokens(None)


@given(st.integers(1, 11), st.sampled_from([0.0, 1.0]), st.integers(0, 99))
def test_a_mask_is_kept(count: int, temperature: float, seed: int) -> None:
  rng = np.random.default_rng(seed)
  logits, allowed = rng.normal(size=12).astype(np.float32), np.zeros(12, bool)
  allowed[rng.permutation(12)[:count]] = True
  sampler = Sampler(SamplingOptions(temperature=temperature, seed=seed, min_p=0))
  assert all(allowed[sampler.sample(logits, allowed)] for _ in range(30))
  assert logits.dtype == np.float32 and np.isfinite(logits).all()  # the model's own are left alone


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers(broken: float) -> None:
  with pytest.raises(ValueError, match="no probabilities"):
    Sampler(SamplingOptions()).sample(np.full(8, broken, np.float32))


@pytest.mark.parametrize(
  "made",
  [
    {"temperature": -1}, {"temperature": math.nan}, {"temperature": "1"}, {"temperature": True}, {"top_k": -1},
    {"top_k": 1.5}, {"top_p": 1.1}, {"min_p": -0.1}, {"repeat_penalty": 0}, {"repeat_last_n": -2}, {"seed": -1},
    {"seed": 1 << 64}, {"presence_penalty": math.inf}, {"frequency_penalty": None}, {"logit_bias": {"1": 1}},
    {"logit_bias": {1: math.nan}},
  ],
)  # fmt: skip
def test_values_that_mean_nothing(made: dict[str, Any]) -> None:
  with pytest.raises(ValueError, match=next(iter(made))):
    SamplingOptions(**made)


def test_what_a_file_recommends() -> None:
  metadata = {
    "general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.min_p": 7.0,
    "general.sampling.penalty_repeat": 1.05, "general.sampling.top_p": "x",
  }  # fmt: skip
  assert recommended(metadata) == {"temperature": 0.6, "top_k": 20, "repeat_penalty": 1.05}


def test_log_probabilities() -> None:
  logits = np.random.default_rng(3).normal(size=50).astype(np.float32)
  wanted = logits - np.log(np.exp(logits.astype(np.float64)).sum())
  found = logprob_of(logits, 7, 5)
  assert found.token == 7 and math.isclose(found.logprob, wanted[7], rel_tol=1e-6)
  assert [i for i, _ in found.top] == np.argsort(-wanted)[:5].tolist()
  np.testing.assert_allclose([value for _, value in found.top], np.sort(wanted)[::-1][:5], rtol=1e-6)
  assert logprob_of(logits, 7, 0).top == ()


@pytest.mark.parametrize("how", [{"top_k": 0, "min_p": 0.0, "top_p": 1.0}, {"top_k": 50}, {"top_k": 0, "min_p": 0.01}])
def test_logits_that_are_rounded_otherwise_draw_the_same(how: dict[str, Any]) -> None:
  rng, same = np.random.default_rng(0), 0
  for seed in range(300):
    logits = rng.normal(size=5000).astype(np.float32)
    other = logits + rng.normal(size=5000).astype(np.float32) * np.float32(1e-5)
    drawn = [Sampler(SamplingOptions(seed=seed, temperature=1.5, **how)).sample(row) for row in (logits, other)]
    same += drawn[0] == drawn[1]
  assert same >= 297
