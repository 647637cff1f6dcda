"""What a project brings that the user has not accepted yet: settings, and a board that somebody else made."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..board import Board, open_board
from ..config.project import Project
from ..errors import BadInput, BoardUnreachable
from ..text import counted, one_line, revealed
from ..tools.policy import Rules, verdict
from ..types import HUMAN, OPEN, Budget
from .accepted import Accepted, Settings
from .command import ODD, file_of, shown_url

_VALUE_CHARS = 160
_KEY_CHARS = 300  # Longer than any can be.
_NAMES_CHARS = 64
_NOT_SET = object()
_LOOKED_AT = 1_000  # Of tasks and messages, of each kind.
_ROOTS_MAX = 200
_ORDER = ("board", "model", "check", "roles", "members", "mcp", "team", "limits", "budget", "review", "policies")


class NotAccepted(BadInput):
    """The user has not accepted the project."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a project brings, and what of it the user has accepted ("known")."""

    settings: Settings = field(default_factory=dict)
    before: Settings | None = None  # What was accepted last; None: nothing.
    settings_known: bool = True
    where: str = ""  # The board's place, without a password.
    identity: str = ""  # Empty: there is no board yet.
    board_known: bool = True
    board_says: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        return self.settings_known and self.board_known


async def look(project: Project, url: str, accepted: Accepted, *, typed: bool) -> Found:
    """Look at what is there, and make nothing. A board that the user typed counts as accepted."""
    settings = flat(project.given)
    known = not settings or accepted.has_settings(project.root, settings)
    before = None if known else accepted.last_settings(project.root)
    if before is not None and changed(before, settings) in ([], ["team.name"]):
        accepted.add_settings(project.root, settings)
        known = True
    board = await _open(url)
    if board is None:
        return Found(settings, before, known, where_of(url))
    async with board:
        identity, where = await board.identity(), where_of(url)
        if typed:
            accepted.add_board(where, identity)
        mine = accepted.has_board(where, identity)
        try:
            says = () if mine else await _describe(board, shown_url(url))
        except ODD as odd:
            await blame(board, url, odd)
            raise
    return Found(settings, before, known, where, identity, mine, says)


def may_be_accepted(project: Project, url: str) -> bool:
    """Whether the settings are accepted, and a board at this place was. Nothing is opened to find out."""
    settings, accepted = flat(project.given), Accepted(os.environ)
    return (not settings or accepted.has_settings(project.root, settings)) and accepted.has_place(where_of(url))


async def is_accepted(board: Board, url: str) -> bool:
    return Accepted(os.environ).has_board(where_of(url), await board.identity())


async def blame(board: Board, url: str, odd: Exception) -> None:
    """A board that the user has not accepted may hold anything: if that makes a command fail, the board is named."""
    with suppress(Exception):
        if await is_accepted(board, url):
            return
    raise BoardUnreachable(
        f"The board at {one_line(shown_url(url), 200)} is damaged: it holds what no board holds "
        f"({type(odd).__name__}); restore a back-up or make a new board."
    ) from odd


async def _open(url: str) -> Board | None:
    """The board, if there is one. If a server cannot be reached, the command says so when it opens the board."""
    path = file_of(url)
    if url.startswith("sqlite") and not _is_there(path):
        return None
    try:
        return await open_board(url, make=False)
    except BoardUnreachable:
        if path is not None:
            raise
        return None


def _is_there(path: Path | None) -> bool:
    """A link that leads nowhere counts too, so that opening it is refused and no board is made."""
    return path is not None and os.path.lexists(path)


def where_of(url: str) -> str:
    """A board's place without the password: the real path of a file, or the server, the database and the name."""
    path = file_of(url)
    if path is not None:
        return os.path.realpath(path)
    if not url.startswith("postgres"):
        return url
    from ..board.store.pool import split_url

    address, board = split_url(url)
    parts = urlsplit(address)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}?board={board}"


# Settings.


def flat(given: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """The settings by their full names, in a form that JSON can keep. An empty table counts: it may name a member or a
    role."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{above}{json.dumps(key) if '.' in key else key}"  # [policies] "a.b" is not b under [policies.a].
        inside = {**value.general, **value.roles} if isinstance(value, Rules) else value
        if isinstance(inside, Mapping):
            found |= flat(inside, f"{name}.") or {name: {}}
        elif isinstance(inside, tuple | list):
            found[name] = list(inside)
        else:
            found[name] = inside if isinstance(inside, str | int | float) else str(inside)
    return found


def changed(before: Settings, now: Settings) -> list[str]:
    return sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))


def settings_lines(found: Found) -> list[str]:
    """What the file sets, one line for each value; if it was accepted before, only what has changed."""
    return [line for _, line in _told(found)]


def _told(found: Found) -> list[tuple[str, str]]:
    """The lines, each with its kind: the table or the key that it is about. What matters most comes first."""
    if found.before is not None:
        keys, before = sorted(changed(found.before, found.settings), key=_rank), found.before
        return [(_kind(key), line) for key in keys for line in _changes(key, before, found.settings)]
    return [
        (_kind(key), f"{_label(key, at, len(values))} = {_value(each)}")
        for key in sorted(found.settings, key=_rank)
        for values in [_values(found.settings[key])]
        for at, each in enumerate(values)
    ]


def _few(told: list[tuple[str, str]], most: int) -> list[str]:
    """So many of the lines, some of every kind, and how many more there are of which kind."""
    places: dict[str, list[int]] = {}
    for at, (kind, _) in enumerate(told):
        places.setdefault(kind, []).append(at)
    in_turn = [at for turn in zip_longest(*places.values()) for at in turn if at is not None]
    shown = set(in_turn[:most])
    left = Counter(kind for at, (kind, _) in enumerate(told) if at not in shown)
    lines = [line for at, (_, line) in enumerate(told) if at in shown]
    if left:
        kinds = ", ".join(f"{count} of {kind}" for kind, count in left.items())
        lines.append(f"and {counted(left.total(), 'more setting')} ({kinds}): `dugnad trust` shows all of them")
    return lines


def _kind(key: str) -> str:
    return one_line(key.partition(".")[0], 40)


def _rank(key: str) -> tuple[int, str, bool, str]:
    name, last = key.partition(".")[0], key.rpartition(".")[2]
    return (_ORDER.index(name) if name in _ORDER else 0, name, last not in ("prompt", "model"), key)


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) and value else [value]


def _label(key: str, at: int, count: int) -> str:
    return one_line(revealed(key), _KEY_CHARS) + (f" ({at + 1} of {count})" if count > 1 else "")


def _changes(key: str, before: Settings, now: Settings) -> Iterator[str]:
    was, is_now = (_values(each[key]) if key in each else [] for each in (before, now))
    count = max(len(was), len(is_now))
    for at, (old, new) in enumerate(zip_longest(was, is_now, fillvalue=_NOT_SET)):
        if old != new:
            pairs = zip(_whole(old), _whole(new), strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            start = max(0, same - _VALUE_CHARS // 4) if same > _VALUE_CHARS // 2 else 0
            how = f"{_value(old, start)} is now {_value(new, start)}"
            if _whole(old) == _whole(new):
                how = f"{_value(new)} differs from before in characters that do not show"
            yield f"{_label(key, at, count)}: {how}"


def _whole(value: Any) -> str:
    if value is _NOT_SET:
        return "not set"
    return f'"{one_line(revealed(value), len(value) * 12)}"' if isinstance(value, str) else str(value).lower()


def _value(value: Any, start: int = 0) -> str:
    """As much of a value as fits into a line, and how much is left out."""
    whole = _whole(value)
    shown = whole[start : start + _VALUE_CHARS]
    left = len(whole) - start - len(shown)
    return ("…" if start else "") + shown + (f"… ({counted(left, 'more character')})" if left > 0 else "")


# A board.


async def _describe(board: Board, shown: str) -> tuple[str, ...]:
    """What the board would make a team do, and what others wrote on it in the user's name."""
    states: Any = sorted(OPEN)
    tasks = await board.list_tasks(states=states, page=_LOOKED_AT)
    accounts = [await board.budget(root) for root in sorted({task.root for task in tasks})[:_ROOTS_MAX]]
    uncapped = sum(each.caps == Budget() for each in accounts)
    team = await board.team()
    leads, prompted = [each.name for each in team if each.lead], [each.name for each in team if each.prompt]
    own = [each for each in await board.inbox(None, queued=False, page=_LOOKED_AT) if each.sender == HUMAN]
    always = sum(verdict(each.text, each.accepted).always for each in own)
    at_least = "at least " if len(tasks) == _LOOKED_AT else ""
    head = f"A board that you did not make, {one_line(shown)}, with {at_least}{counted(len(tasks), 'open task')}"
    models = sorted({each.model for each in team if each.model})
    facts = (
        (uncapped, f"{counted(uncapped, 'open goal')} without any cap on what may be spent"),
        (leads, f"led by {_names(leads)}"),
        (models, f"models of its own: {_names(models)}"),
        (prompted, f"prompts of its own for {_names(prompted)}"),
        (own, f"{counted(len(own), 'message')} and answers in your name" + (f', {always} "always"' if always else "")),
    )
    return (head, *(words for there, words in facts if there))


def _names(names: Iterable[str]) -> str:
    return one_line(", ".join(names), _NAMES_CHARS)


def lines_of(found: Found, root: Path, *, most: int | None = None) -> list[str]:
    """What a person is shown; with `most`, only so many settings, and how many more there are."""
    said = []
    if not found.settings_known:
        told = _told(found)
        head = "dugnad.toml sets:" if found.before is None else "dugnad.toml changed since you accepted it:"
        said += [head, *(f"  {each}" for each in _few(told, most or len(told)))]
    if not found.board_known:
        first, *rest = found.board_says
        said += [first + (":" if rest else ""), *(f"  {each}" for each in rest)]
    return [f"{one_line(root, 200)} is new to you." if found.before is None else one_line(root, 200), *said]
