"""Reading the body of a write: each key with its kind, nothing missing, nothing more. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import BadInput
from ..text import one_line
from ..types import Need

Kind = Callable[[str, Any], Any]  # Takes the name and the value, or None if there is none; refuses in one sentence.
_NUMBER_MAX = 2**53
_NEED = re.compile(r"#?([0-9]{1,15})(?::(.{1,40}))?")
_ITEMS_MAX = 1_000
_CAPS = ("tasks", "tokens", "dollars", "minutes")


def read_body(given: Mapping[str, Any], kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """The values of a body. A key that is not known is refused: it may be a wrong name of one that is."""
    if strange := [name for name in given if name not in kinds]:
        names = ", ".join(kinds)
        raise BadInput(f"{one_line(strange[0], 40)!r} is not known here; there is {names}.")
    return {name: kind(name, given.get(name)) for name, kind in kinds.items()}


def text(most: int, *, default: str | None = None) -> Kind:
    """A text of so many characters. Without a default, it must say something."""

    def read(name: str, value: Any) -> str:
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise BadInput(f"{name} must be a text.")
        if len(value) > most:
            raise BadInput(f"{name} has {len(value):,} characters; {most:,} are allowed.")
        if default is None and not value.strip():
            raise BadInput(f"{name} is empty; write a text.")
        return value

    return read


def maybe_text(most: int) -> Kind:
    """A text, or None if it is empty or missing."""
    read = text(most, default="")
    return lambda name, value: str(read(name, value)).strip() or None


def flag(name: str, value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise BadInput(f"{name} must be true or false.")
    return bool(value)


def number(least: int, most: int = _NUMBER_MAX, *, default: int | None = None) -> Kind:
    def read(name: str, value: Any) -> int | None:
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise BadInput(f"{name} must be a whole number from {least} to {most}.")
        return value

    return read


def maybe(kind: Kind) -> Kind:
    return lambda name, value: None if value is None else kind(name, value)


def one_of(*choices: str) -> Kind:
    def read(name: str, value: Any) -> str:
        if value not in choices:
            raise BadInput(f"{name} must be one of {', '.join(choices)}.")
        return str(value)

    return read


def several(kind: Kind) -> Kind:
    """A list; nothing means an empty one."""

    def read(name: str, value: Any) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > _ITEMS_MAX:
            raise BadInput(f"{name} must be a list of at most {_ITEMS_MAX:,}.")
        return [kind(name, each) for each in value]

    return read


def need(name: str, value: Any) -> Need:
    """A task's number, or "3:approved"."""
    found = _NEED.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if found is None or int(found[1]) == 0:
        raise BadInput(f"{name} must have numbers of tasks such as 3, or texts such as 3:approved.")
    return Need(int(found[1]), found[2])


def message(name: str, value: Any) -> int:
    """A message's number, or "m34"."""
    found = re.fullmatch(r"m?([0-9]{1,15})", str(value)) if isinstance(value, str | int) else None
    if found is None or isinstance(value, bool):
        raise BadInput(f"{name} must have messages such as m34.")
    return int(found[1])


def cap(name: str, value: Any) -> float | str | None:
    """A number above zero, "none" for no cap, or nothing."""
    if value is None or value == "none":
        return value  # type: ignore[no-any-return]
    whole = name in ("tasks", "tokens")
    right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not right or not 0 < value <= _NUMBER_MAX:
        raise BadInput(f"{name} must be a {'whole ' * whole}number above 0, or the text none.")
    return value  # type: ignore[no-any-return]


def caps(name: str, value: Any) -> dict[str, Any]:
    """The caps of a new goal."""
    if value is not None and not isinstance(value, dict):
        raise BadInput(f"{name} must be an object.")
    return read_body(value or {}, dict.fromkeys(_CAPS, cap))
