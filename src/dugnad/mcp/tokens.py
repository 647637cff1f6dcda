"""Bearer tokens: one for each teammate of a board that works over HTTP. Only the SHA-256 of a token is kept.

The user's state folder has a small file for each. Its name is the hash, so a token is found without looking at others.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

from ..clock import new_secret
from ..config.servers import replace_file
from ..errors import BadInput
from ..safe_open import held, owners, read_named, user_state

_BYTES_MAX = 64 * 1024
_BEGINS = "dugnad_"  # So that a person, or a program that looks for lost secrets, knows what it is.


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenHolder:
    """Whose token it is."""

    board: str  # Its identity.
    teammate: str
    roles: tuple[str, ...] = ()


class Tokens:
    """All tokens that this user has given out."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = user_state(environment, "mcp-tokens")
        self._known: dict[str, tuple[tuple[int, int], TokenHolder | None]] = {}  # By file: when it was read, and what.

    def give(self, holder: TokenHolder) -> str:
        """A new token. An older one of the same teammate of the board no longer works."""
        token = f"{_BEGINS}{new_secret()}"
        try:
            with held(self.folder, make=True) as inside:
                os.chmod(".", 0o700, dir_fd=inside)
            self.revoke(holder.board, holder.teammate)
            replace_file(self.folder / f"{_hash(token)}.json", json.dumps(asdict(holder), sort_keys=True) + "\n")
        except OSError as trouble:
            raise BadInput(
                f"The token cannot be kept in {self.folder}: {trouble.strerror}. Set XDG_STATE_HOME to a folder of "
                "yours that can be written."
            ) from None
        return token

    def find(self, token: str) -> TokenHolder | None:
        """Whose token this is; None: nobody's."""
        if not token.startswith(_BEGINS):
            return None
        name = f"{_hash(token)}.json"
        try:
            facts = os.lstat(self.folder / name)
        except OSError:
            self._known.pop(name, None)
            return None
        mark = (facts.st_ino, facts.st_mtime_ns)
        if name not in self._known or self._known[name][0] != mark:
            self._known[name] = (mark, self._read(name))
        return self._known[name][1]

    def of(self, board: str) -> list[TokenHolder]:
        return sorted((each for _, each in self._all() if each.board == board), key=lambda each: each.teammate)

    def revoke(self, board: str, teammate: str) -> int:
        """Returns how many tokens no longer work."""
        found = [name for name, each in self._all() if (each.board, each.teammate) == (board, teammate)]
        for name in found:
            (self.folder / name).unlink(missing_ok=True)
        return len(found)

    def _all(self) -> Iterator[tuple[str, TokenHolder]]:
        names: list[str] = []
        with suppress(OSError), held(self.folder) as inside:
            names = os.listdir(inside)
        for name in names:
            if not name.startswith(".") and (found := self._read(name)) is not None:
                yield name, found

    def _read(self, name: str) -> TokenHolder | None:
        try:
            content, owner = read_named(self.folder / name, "The token", _BYTES_MAX)
            given = json.loads(content)
            found = TokenHolder(
                board=str(given["board"]), teammate=str(given["teammate"]), roles=tuple(map(str, given["roles"]))
            )
        except (BadInput, ValueError, KeyError, TypeError):
            return None
        return found if owner in owners() else None


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
