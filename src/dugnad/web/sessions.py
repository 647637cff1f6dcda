"""Who may look and who may steer: keys that the terminal prints, and the sessions they are exchanged for.

A key for *steer* works once. A key for *look* may be shared, and works until the server ends. Keys are only in memory.
Sessions last for some hours and are kept in the user's state folder, so that a page keeps its session when the server
is started again. Neither a key nor the id of a session is stored, only its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import os
from asyncio import Event
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from ..clock import new_secret, wall_ms
from ..config.servers import replace_file
from ..errors import BadInput
from ..logs import logger
from ..safe_open import held, owners, read_named, user_state

_LOG = logger(__name__)
SESSION_SECONDS = 12 * 3_600
_SESSIONS_MAX = 100
_FILE_BYTES_MAX = 256 * 1024
_CHARS_MAX = 200  # Of a key or an id; ours are shorter.
Scope = Literal["look", "steer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSession:
    """What somebody with a browser may do, and until when."""

    scope: Scope
    who: str | None  # The login name of the person who steers; a link to look at may be shared, so it names nobody.
    boards: tuple[str, ...]  # The identities of the boards that it is for.
    expires_at: int
    hash: str  # Of its id.

    @property
    def steers(self) -> bool:
        return self.scope == "steer"


@dataclass(frozen=True, slots=True, kw_only=True)
class _WebKey:
    scope: Scope
    who: str | None
    boards: tuple[str, ...]


def sessions_file(environment: Mapping[str, str], port: int) -> Path:
    """Where the sessions of the server at this port are kept."""
    return user_state(environment, "web") / f"sessions-{port}.json"


def forget_old(folder: Path) -> None:
    """Remove the files of servers whose sessions have all expired."""
    with suppress(OSError), held(folder) as inside:
        for name in os.listdir(inside):
            written = os.stat(name, dir_fd=inside, follow_symlinks=False).st_mtime * 1_000
            if name.startswith("sessions-") and written + SESSION_SECONDS * 1_000 < wall_ms():
                os.unlink(name, dir_fd=inside)


class Sessions:
    """The keys and sessions of one server. Without a file, they end with it."""

    def __init__(
        self, file: Path | None = None, *, now_ms: Callable[[], int] = wall_ms, secret: Callable[[], str] = new_secret
    ) -> None:
        self._file, self._now_ms, self._secret = file, now_ms, secret
        self._keys: dict[str, _WebKey] = {}
        self._found: dict[str, WebSession] = _load(file) if file is not None else {}
        self._listeners: dict[str, list[Event]] = {}

    def new_key(self, scope: Scope, *, boards: Iterable[str], who: str | None = None) -> str:
        """A key for a link. A new key to steer takes the place of one that nobody has used yet."""
        if scope == "steer":
            self._keys = {hash: key for hash, key in self._keys.items() if key.scope != "steer"}
        key = self._secret()
        self._keys[_hash(key)] = _WebKey(scope=scope, who=who if scope == "steer" else None, boards=tuple(boards))
        return key

    def exchange(self, key: str) -> tuple[str, WebSession] | None:
        """A new session for a key, with its id. None: there is no such key, or it was used."""
        hash = _hash(key)
        found = self._keys.get(hash)
        if found is None:
            return None
        if found.scope == "steer":
            del self._keys[hash]
        id = self._secret()
        session = WebSession(
            scope=found.scope, who=found.who, boards=found.boards, expires_at=self._now_ms() + SESSION_SECONDS * 1_000,
            hash=_hash(id),
        )  # fmt: skip
        self._make_room()
        self._found[session.hash] = session
        self._keep()
        return id, session

    def find(self, id: str) -> WebSession | None:
        """The session with this id, unless it has ended."""
        session = self._found.get(_hash(id))
        return session if session is not None and self.lives(session) else None

    def lives(self, session: WebSession) -> bool:
        return session.hash in self._found and self.seconds_left(session) > 0

    def seconds_left(self, session: WebSession) -> float:
        return (session.expires_at - self._now_ms()) / 1_000

    def end(self, session: WebSession) -> None:
        """End a session, and with it everything that it has open."""
        self._drop(session.hash)
        self._keep()

    @contextmanager
    def listening(self, session: WebSession, ended: Event) -> Iterator[None]:
        """Set the event when the session is ended. Expiry sets nothing; `seconds_left` says when that is."""
        listeners = self._listeners.setdefault(session.hash, [])
        listeners.append(ended)
        try:
            yield
        finally:
            listeners.remove(ended)
            if not listeners:
                self._listeners.pop(session.hash, None)

    def _make_room(self) -> None:
        """Forget expired sessions, and if there are too many, the oldest: first those that only look."""
        for session in [each for each in self._found.values() if not self.lives(each)]:
            self._drop(session.hash)
        oldest = sorted(self._found.values(), key=lambda each: (each.steers, each.expires_at))
        for session in oldest[: max(0, len(oldest) - _SESSIONS_MAX + 1)]:
            self._drop(session.hash)

    def _drop(self, hash: str) -> None:
        self._found.pop(hash, None)
        for each in self._listeners.get(hash, ()):
            each.set()

    def _keep(self) -> None:
        """Write the file. If that fails, the sessions last as long as the server."""
        if self._file is None:
            return
        kept = [asdict(each) for each in self._found.values() if self.lives(each)]
        try:
            with held(self._file.parent, make=True) as inside:
                os.chmod(".", 0o700, dir_fd=inside)
            replace_file(self._file, json.dumps({"sessions": kept}) + "\n")
        except OSError as trouble:
            _LOG.warning("sessions-not-kept file=%s why=%s", self._file, trouble.strerror)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret[:_CHARS_MAX].encode(errors="replace")).hexdigest()


def _load(file: Path) -> dict[str, WebSession]:
    """The sessions in a file. A file that is damaged, or belongs to another user, counts as none."""
    try:
        with held(file.parent):
            content, owner = read_named(file, str(file), _FILE_BYTES_MAX)
        if owner not in owners():
            return {}
        rows = json.loads(content)["sessions"]
        return {row["hash"]: _session(row) for row in rows[:_SESSIONS_MAX]}
    except (OSError, BadInput, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _session(row: dict[str, Any]) -> WebSession:
    session = WebSession(**{**row, "boards": tuple(row["boards"])})
    right = (
        session.scope in ("look", "steer") and isinstance(session.who, str | None) and isinstance(session.hash, str)
        and isinstance(session.expires_at, int) and all(isinstance(each, str) for each in session.boards)
    )  # fmt: skip
    if not right:
        raise ValueError("It is not a session.")
    return session
