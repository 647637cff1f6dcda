"""Prices and context windows, from the `genai-prices` package. These are published prices, not what you pay."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ..clock import wall_ms
from .port import Facts, Price

# Names of providers that differ between pydantic-ai and genai-prices.
_ALIASES = {"openai-chat": "openai", "openai-responses": "openai", "google-cloud": "google"}


def facts_of(provider: str, model: str, *, price: Price | None = None, window_tokens: int | None = None) -> Facts:
    """What is known about a model. Values from the user come first."""
    found = _find(_ALIASES.get(provider, provider), model)
    return Facts(
        window_tokens=window_tokens or (found.context_window if found else None),
        price=price or (_price(found) if found else None),
    )


def _find(provider: str, model: str) -> Any:
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, provider, None)[1]
    except LookupError:
        return None


def _price(found: Any) -> Price | None:
    prices = found.get_prices(datetime.fromtimestamp(wall_ms() / 1000, UTC))
    columns = (prices.input_mtok, prices.output_mtok, prices.cache_read_mtok, prices.cache_write_mtok)
    if columns[0] is None or columns[1] is None:
        return None
    starts = sorted({tier.start for column in columns for tier in getattr(column, "tiers", ())})
    above = tuple((start, _at(columns, start)) for start in starts)
    base = _at(columns, -1)
    return replace(base, above=above)


def _at(columns: tuple[Any, ...], start: int) -> Price:
    """The prices from a certain length of input on."""
    values: list[float | None] = []
    for column in columns:
        price = getattr(column, "base", column)
        for tier in getattr(column, "tiers", ()):
            price = tier.price if tier.start <= start else price
        values.append(None if price is None else float(price))
    fresh, output, read, write = values
    return Price(input=fresh or 0.0, output=output or 0.0, cache_read=read, cache_write=write)
