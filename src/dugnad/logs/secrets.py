"""Removes secrets from logs, kept tracebacks and error messages.

Known secrets are kept for the whole process: a secret that one part reads may stand in another part's error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, unquote, urlsplit

_CHARS_MIN = 6  # A shorter value is in many texts by chance.
_KNOWN: dict[str, str] = {}  # What is shown instead of each value.
_SECRET_NAME = re.compile(r"key|secret|token|passw|credential|auth(?!or(?!i))", re.IGNORECASE)
# Secrets that we were not told: a name or password in an address, the value of a header or setting, and keys of the
# well-known forms.
_SHAPES = (
    (re.compile(r"(\w://)[^\s/@'\"]+@"), r"\1[hidden]@"),
    (
        re.compile(
            r"(?i)\b((?:proxy-)?authorization|x-api-key|(?:\w+_)?(?:api_?key|passw(?:or)?d|secret|token))"
            r"(['\"]?\s*[:=]\s*['\"]?)(?:(?:bearer|basic|token)\s+)?[^\s'\",;&)]+"
        ),
        r"\1\2[hidden]",
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), r"\1 [hidden]"),
    (re.compile(r"\b(?:sk|pk|rk|ghp|gho|ghs|glpat|github_pat|xox[a-z])[-_][\w-]{12,}|\bAIza[\w-]{20,}"), "[hidden]"),
)


def hide(secrets: Mapping[str, str | None]) -> None:
    """From now on, show `[name]` instead of the value."""
    _KNOWN.update({value: f"[{name}]" for name, value in secrets.items() if value})


def hide_password(url: str) -> None:
    """Hide the password in a database's address."""
    try:
        parts = urlsplit(url)
        given = [parts.password, *(value for name, value in parse_qsl(parts.query) if _SECRET_NAME.search(name))]
    except ValueError:  # It is not an address; opening it says so.
        return
    for each in given:
        hide({"password": each})
        hide({"password": unquote(each or "")})


def without(text: str, secrets: Mapping[str, str]) -> str:
    """The text with each value replaced. The longest comes first, since one value may begin another."""
    for value in sorted(secrets, key=len, reverse=True):
        if len(value) >= _CHARS_MIN:
            for form in {value, quote(value, safe=""), repr(value)[1:-1], json.dumps(value)[1:-1]}:
                text = text.replace(form, secrets[value])
    return text


def without_secrets(text: object) -> str:
    """The text without known secrets, and without what looks like one."""
    named = {value: f"[{name}]" for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    text = without(str(text), named | _KNOWN)
    for shape, instead in _SHAPES:
        text = shape.sub(instead, text)
    return text
