"""From a URL to a board."""

from __future__ import annotations

from pathlib import Path

from ..clock import Sources
from ..errors import BadBoardURL, BoardUnreachable
from ..logs.secrets import hide_password
from ..settings import Limits, Patience
from .board import Board
from .store.seam import Store


async def open_board(
    url: str, *, limits: Limits | None = None, patience: Patience | None = None, sources: Sources | None = None,
    threads: bool = True, make: bool = True,
) -> Board:  # fmt: skip
    """Open the board at `url`. A new one is made if there is none, and an old one is upgraded.

    sqlite:///relative/path.db, sqlite:////absolute/path.db, sqlite://:memory:, or
    postgresql://user@host/database?board=name. Without `threads` (simulation) SQLite works inline.
    Without `make`, a missing board is an error.
    """
    limits, patience, sources = limits or Limits(), patience or Patience(), sources or Sources()
    hide_password(url)
    store: Store
    if url.startswith("sqlite://"):
        from .store.sqlite import SqliteStore

        path = sqlite_path(url)
        if not make and (path is None or not path.exists()):
            raise BoardUnreachable(f"There is no board at {path or url} yet; `dugnad add` or `dugnad run` makes one.")
        store = SqliteStore(path, limits=limits, patience=patience, sources=sources, threads=threads)
    elif url.startswith(("postgresql://", "postgres://")):
        from .store.postgres import PostgresStore  # Imported here: a SQLite board needs no driver.

        store = PostgresStore(url, limits=limits, patience=patience, sources=sources)
        try:
            await store.open(make=make)
        except BaseException:
            await store.close()
            raise
    else:
        raise BadBoardURL(
            f"{url.partition(':')[0]!r} is not a kind of board; use sqlite:///path/to/board.db or postgresql://host/database."
        )
    return Board(store, limits=limits, patience=patience, sources=sources)


def sqlite_path(url: str) -> Path | None:
    """The file, or None for a board in memory."""
    rest = url.removeprefix("sqlite://")
    if rest in (":memory:", "/:memory:"):
        return None
    if not rest.startswith("/") or rest == "/":
        raise BadBoardURL(f"{url!r} needs three slashes and a path: sqlite:///path/to/board.db.")
    if "\0" in rest:
        raise BadBoardURL("The board's path contains a NUL character; remove it.")
    return Path(rest[1:]).absolute()
