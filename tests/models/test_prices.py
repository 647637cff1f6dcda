"""What a reply costs is never counted too low, and what nobody knows is said to be unknown."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from genai_prices import Usage as Counted
from genai_prices import calc_price
from hypothesis import given, settings
from hypothesis import strategies as st

from dugnad.models import Facts, Price, Usage
from dugnad.models.prices import facts_of

counts = st.integers(min_value=0, max_value=2_000_000)
amounts = st.integers(min_value=0, max_value=10_000).map(lambda cents: cents / 100)


def test_dollars_per_million_are_microdollars_per_token() -> None:
    assert Price(input=3, output=15).microdollars(Usage(input_tokens=1_000, output_tokens=100)) == 3_000 + 1_500


@pytest.mark.parametrize(("tokens", "cost"), [(0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (40, 10), (41, 11)])
def test_a_part_of_a_microdollar_counts_as_a_whole(tokens: int, cost: int) -> None:
    assert Price(input=0.25, output=0).microdollars(Usage(input_tokens=tokens)) == cost


def test_what_a_float_cannot_hold_does_not_cost_more() -> None:
    assert Price(input=0.1, output=0).microdollars(Usage(input_tokens=30)) == 3
    assert Price(input=1.1, output=0).microdollars(Usage(input_tokens=10)) == 11


def test_cached_input_has_prices_of_its_own_and_is_not_paid_twice() -> None:
    price = Price(input=3, output=15, cache_read=0.3, cache_write=3.75)
    used = Usage(input_tokens=1_000, output_tokens=10, cache_read_tokens=600, cache_write_tokens=100)
    assert price.microdollars(used) == 300 * 3 + 600 * 0.3 + 100 * 3.75 + 150


def test_cached_input_without_a_price_costs_what_other_input_costs() -> None:
    used = Usage(input_tokens=1_000, cache_read_tokens=600, cache_write_tokens=100)
    assert Price(input=3, output=15).microdollars(used) == 3_000
    assert Price(input=3, output=15, cache_read=0.0).microdollars(used) == 400 * 3


def test_counts_that_contradict_each_other_never_lower_the_price() -> None:
    used = Usage(input_tokens=10, cache_read_tokens=100)
    assert Price(input=3, output=15, cache_read=1).microdollars(used) == 100


@pytest.mark.parametrize(
    ("tokens", "rate"), [(1, 1), (1_000, 1), (1_001, 2), (5_000, 2), (5_001, 4), (1_000_000, 4)]
)  # fmt: skip
def test_a_long_input_costs_what_holds_above_its_length(tokens: int, rate: int) -> None:
    above = ((1_000, Price(input=2, output=20)), (5_000, Price(input=4, output=40)))
    price = Price(input=1, output=10, above=above)
    used = Usage(input_tokens=tokens, output_tokens=1)
    assert price.microdollars(used) == rate * tokens + 10 * rate


@settings(max_examples=200, derandomize=True)
@given(amounts, amounts, st.none() | amounts, st.none() | amounts, counts, counts, st.tuples(counts, counts))
def test_a_price_is_rounded_up_and_by_less_than_one(
    fresh: float, output: float, read: float | None, write: float | None, said: int, heard: int, cached: tuple[int, int]
) -> None:
    total = said + sum(cached)
    used = Usage(input_tokens=total, output_tokens=heard, cache_read_tokens=cached[0], cache_write_tokens=cached[1])
    cost = Price(input=fresh, output=output, cache_read=read, cache_write=write).microdollars(used)
    rates = (fresh, fresh if read is None else read, fresh if write is None else write, output)
    exact = sum(Fraction(str(rate)) * count for rate, count in zip(rates, (said, *cached, heard), strict=True))
    assert 0 <= cost - exact < 1


KNOWN = [
    ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-4-1"), ("openai", "gpt-4o"), ("openai", "gpt-5"),
    ("openai-chat", "gpt-4o-mini"), ("openai-responses", "gpt-5"), ("google", "gemini-2.5-pro"),
    ("google-cloud", "gemini-2.5-flash"), ("deepseek", "deepseek-chat"), ("groq", "llama-3.3-70b-versatile"),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "model"), KNOWN)
@pytest.mark.parametrize("length", [1_000, 128_000, 200_000, 200_001, 300_000])
def test_a_known_model_costs_what_was_published(provider: str, model: str, length: int) -> None:
    price = facts_of(provider, model).price
    assert price is not None
    counted = Counted(input_tokens=length, output_tokens=500, cache_read_tokens=length // 2)
    published = provider if provider in ("anthropic", "deepseek", "groq", "google") else provider.partition("-")[0]
    paid = calc_price(counted, model_ref=model, provider_id=published).total_price * 1_000_000
    used = Usage(input_tokens=length, output_tokens=500, cache_read_tokens=length // 2)
    assert 0 <= Decimal(price.microdollars(used)) - paid < 1


def test_a_window_is_known_where_it_was_published() -> None:
    assert facts_of("anthropic", "claude-sonnet-4-5").window_tokens == 200_000


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "some-local-model"), ("nobody", "gpt-4o"), ("anthropic", ""), ("", "")]
)
def test_of_an_unknown_model_nothing_is_known(provider: str, model: str) -> None:
    assert facts_of(provider, model) == Facts(window_tokens=None, price=None)


def test_what_is_given_counts_more_than_what_was_published() -> None:
    free = Price(input=0, output=0)
    assert facts_of("openai", "gpt-4o", price=free, window_tokens=9) == Facts(window_tokens=9, price=free)
    assert facts_of("openai", "some-local-model", price=free) == Facts(window_tokens=None, price=free)
    assert facts_of("openai", "gpt-4o", window_tokens=9).price == facts_of("openai", "gpt-4o").price
