"""What a provider's refusal means: one of the kinds of ModelTrouble, told in one sentence. Pure but for the time."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from ..clock import wall_ms
from ..errors import (
    ContextOverflow,
    ModelMisconfigured,
    ModelTrouble,
    ModelUnavailable,
    QuotaSpent,
    RateLimited,
    RequestRejected,
)
from ..logs import without_secrets
from ..text import length

_RESET = "anthropic-ratelimit-unified-reset"  # When a subscription has more again, in seconds since 1970.
_QUOTA = frozenset(
    {"insufficient_quota", "billing_hard_limit_reached", "credit_balance_exhausted", "billing_error",
     "organization_spend_limit_exceeded", "project_spend_limit_exceeded", "organization_usage_limit_exceeded"}
)  # fmt: skip
_NO_CREDIT = "credit balance is too low"
_OVERLOADED = ("overloaded", "over capacity")
# The second name is llama.cpp's. Other servers only say it in words.
_TOO_LONG = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_TOO_LONG_WORDS = ("prompt is too long", "maximum context length", "reduce the length of the messages")


def trouble_of(name: str, status: int, body: Any, headers: Mapping[str, str]) -> ModelTrouble:
    """The trouble that a status and a body mean. The names of the headers are in lower case."""
    told = told_in(body)
    words = str(told.get("message") or "").lower()
    codes = {str(told.get(key) or "") for key in ("code", "type")}
    text = str(told.get("message") or f"it answered {status}: {told.get('text') or ''}")
    said = f"{name}: {sentence(text)}"
    if status == 402 or codes & _QUOTA or _NO_CREDIT in words:
        return _spent(said, headers)
    says = [*codes, words] if status == 503 else codes
    if status in (429, 529) or any(word in each.lower() for each in says for word in _OVERLOADED):
        return RateLimited(said, seconds=retry_after(headers))
    if status == 413 or codes & _TOO_LONG or any(each in words for each in _TOO_LONG_WORDS):
        return ContextOverflow(said)
    if status == 404 or 300 <= status < 400 or "model_not_found" in codes:
        return ModelMisconfigured(f"{said} Check the model's name and the server's address.")
    if status == 403 and told.get("metadata"):
        return RequestRejected(said)  # OpenRouter: what was asked was flagged, and nothing is wrong with the key.
    if status in (401, 403) or "invalid_api_key" in codes:
        return ModelMisconfigured(f"{said} The provider does not accept the key; set the right one.")
    return RequestRejected(said) if status in (400, 422) else ModelUnavailable(said)


def told_in(body: Any) -> dict[str, Any]:
    inner = body.get("error", body) if isinstance(body, dict) else {"text": body}
    return inner if isinstance(inner, dict) else {"message": inner}


def sentence(text: str) -> str:
    flat = " ".join(without_secrets(text).split())[:500].rstrip(": ")
    return flat if flat.endswith((".", "!", "?")) else f"{flat}."


def retry_after(headers: Mapping[str, str]) -> float | None:
    """How many seconds the provider asks us to wait: as milliseconds, as seconds or as a date."""
    milliseconds, seconds = headers.get("retry-after-ms", ""), headers.get("retry-after", "")
    if milliseconds.replace(".", "", 1).isdecimal():
        return float(milliseconds[:12]) / 1000
    if seconds.isdecimal():
        return float(seconds[:12])
    try:
        return max(0.0, parsedate_to_datetime(seconds).timestamp() - wall_ms() / 1000)
    except (ValueError, TypeError, OverflowError):
        return None


def _spent(said: str, headers: Mapping[str, str]) -> QuotaSpent:
    """With the time until the quota is reset, if the provider tells it: as a delay, or for a subscription as a time."""
    seconds, reset = retry_after(headers), headers.get(_RESET, "")
    if seconds is None and reset.isdecimal():
        seconds = max(0.0, int(reset[:12]) - wall_ms() / 1000)
    if seconds is None:
        return QuotaSpent(f"{said} The account has no credit left; add some, then start again.")
    more = f"There is more again in {length(seconds * 1000)}"
    return QuotaSpent(f"{said} {more}; start again then, or let --wait-for-quota wait.", seconds=seconds)
