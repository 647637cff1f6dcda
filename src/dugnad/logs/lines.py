"""One line for each event: `key=value` pairs, with the task, attempt and teammate that the line is about.

A message is a template whose first word names the event: `log.info("settled as=%s", state)`. Values are made
harmless here, so that they cannot begin a line or a pair.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime

from ..text import plain, within_bytes
from .secrets import without_secrets

TRACEBACK_BYTES_MAX = 16 * 1024
_VALUE_CHARS_MAX = 1_000
_BARE = re.compile(r"[\w.:/@+-]+", re.ASCII)  # Other values stand in quotation marks.
_ABOUT: ContextVar[dict[str, object]] = ContextVar("about")


def logger(name: str) -> logging.Logger:
    """The logger of a module. It prints nothing before `start_logging`."""
    package = logging.getLogger("dugnad")
    if not package.handlers:
        package.addHandler(logging.NullHandler())
    return logging.getLogger(name)


def about(**fields: object) -> None:
    """Set fields for the lines of this asyncio task and of those that it starts from now on. None removes a field."""
    _ABOUT.set({**_ABOUT.get({}), **fields})


def traceback_text(bug: BaseException) -> str:
    """The whole stack, without secrets and without the values of variables."""
    return within_bytes(plain(without_secrets("".join(traceback.format_exception(bug)))), TRACEBACK_BYTES_MAX)


class AboutFilter(logging.Filter):
    """Adds the fields of `about` to a record."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.about = _ABOUT.get({})
        return True


class LineFormatter(logging.Formatter):
    """A record as one line."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        known = {name: value for name, value in getattr(record, "about", {}).items() if value is not None}
        head = {"time": at, "level": record.levelname.lower(), "logger": record.name, **known}
        given = record.args if isinstance(record.args, tuple) else ()
        parts = [f"{name}={_value(value)}" for name, value in head.items()]
        parts.append(f"event={record.msg % tuple(map(_value, given))}")
        if record.exc_info and record.exc_info[1]:
            parts.append(f"traceback={json.dumps(traceback_text(record.exc_info[1]), ensure_ascii=False)}")
        return " ".join(parts)


def _value(value: object) -> object:
    if isinstance(value, int | float):
        return value
    text = plain(without_secrets(value))
    text = text if len(text) <= _VALUE_CHARS_MAX else f"{text[: _VALUE_CHARS_MAX - 1]}…"
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
