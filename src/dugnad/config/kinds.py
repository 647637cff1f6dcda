"""Values that several files have: names, hosts, addresses, the words of a command, and a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

from ..board import rules
from ..errors import BadInput, BadText
from ..settings import Limits
from ..text import shows
from ..types import Budget
from ..workspace.sandbox.destinations import parse_hosts
from ..workspace.sandbox.services import parse_services
from .reader import FileLocation, Pattern, shown, text


def line(place: FileLocation, value: Any) -> str:
    if len(text(place, value)) > 80 or not all(map(shows, value)):
        raise BadInput(f"{place} must be one short line, not {shown(value)}.")
    return str(value)


def board_name(what: str, place: FileLocation, value: Any) -> str:
    """A name that the board takes."""
    try:
        return rules.name(what, text(place, value), Limits())
    except BadText as trouble:
        raise BadInput(f"{place}: {trouble}") from None


def words(example: str, place: FileLocation, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise BadInput(f"{place} must be a list of words such as [{example}], not {shown(value)}.")
    return tuple(text(place, each) for each in value)


def address(example: str, instead: str, place: FileLocation, value: Any) -> str:
    """A server's address. `instead`: where a password belongs."""
    try:
        parts = urlsplit(text(place, value))
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise BadInput(f"{place} must be an address such as {example}.")
    if parts.username is not None or parts.password is not None:
        raise BadInput(f"{place} holds a name or password; {instead}.")
    return str(value)


def _parsed(parse: Callable[[list[str]], object], place: FileLocation, value: Any) -> tuple[str, ...]:
    given = [text(place, each) for each in (value if isinstance(value, list) else [value])]
    try:
        parse(given)
    except BadInput as wrong:
        raise BadInput(f"{place}: {wrong}") from None
    return tuple(given)


Line = Annotated[str, line]
Variable = Annotated[str, Pattern("[A-Za-z_][A-Za-z0-9_]*", ": {} is not the name of a variable.")]
# What may be reached, by the sandbox's own rules. Services are in the user's own file alone.
Hosts = Annotated[tuple[str, ...], partial(_parsed, parse_hosts)]
Services = Annotated[tuple[str, ...], partial(_parsed, parse_services)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTable:
    """[budget]: what people cap."""

    tasks: int | None = None
    tokens: int | None = None
    dollars: float | None = None
    minutes: float | None = None

    def caps(self) -> Budget:
        seconds = None if self.minutes is None else self.minutes * 60
        return Budget(tasks=self.tasks, tokens=self.tokens, dollars=self.dollars, seconds=seconds)
