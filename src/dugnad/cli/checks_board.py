"""The checks of `dugnad doctor` on the board: whether it works, and whether its team can work."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path

from ..board import Board, open_board
from ..board.roots import budget_id, root_name
from ..board.store.disk import enter, network_filesystem, read_mounts
from ..board.store.migrations import latest
from ..errors import BoardUnreachable
from ..safe_open import OWN
from ..settings import Patience
from ..types import HUMAN, Task, TaskState
from ..view.numbers import clock
from .accepted import Accepted
from .checks import Finding, Scene, ok, warning, wrong
from .command import file_of
from .unaccepted import flat, where_of

_SKEW_MS_MAX = 2_000
_SPACE_LOW, _SPACE_LEAST = 1024**3, 64 * 1024**2
_ROOTS_MAX = 200  # Goals whose accounts are read.
_NAMED_MAX = 5
_OPEN: tuple[TaskState, ...] = ("ready", "blocked", "scheduled", "claimed", "waiting")


async def open_the_board(scene: Scene) -> Finding | None:
    if scene.project is None and not scene.board_given:
        return None
    if scene.project is not None:
        scene.url = scene.project.board_url(scene.board_given, scene.environment, scene.user)
    else:
        scene.url = scene.board_given or ""
    path = file_of(scene.url)
    if path is not None and path.parent.name == OWN and path.parent.is_dir():
        enter(path.parent)
    if path is not None and path.exists() and not path.is_file():
        return wrong(f"{path} is not a file.", "remove it, or name another path with --board")
    if path is not None and not (path.exists() and path.stat().st_size):
        scene.no_board = True
        return _no_board_yet(path)
    if path is not None and 0 < (schema := _schema(path)) < latest():
        says = f"{path} has schema {schema}; the next command upgrades it to {latest()}, which cannot be undone."
        return warning(says, f"sqlite3 {shlex.quote(str(path))} \"VACUUM INTO 'backup.db'\"")
    limits = scene.project.limits if scene.project else None
    patience = Patience(busy_seconds=3, reconnect_seconds=5, statement_seconds=10, network_seconds=5)
    try:
        scene.board = await open_board(scene.url, limits=limits, patience=patience, make=False)
    except BoardUnreachable as trouble:
        scene.no_board = str(trouble).startswith("There is no board ")
        if not scene.no_board:
            raise
        return ok(str(trouble))
    scene.tasks = await scene.board.list_tasks(states=_OPEN, page=1_000)
    return ok(f"{shown_url(scene.url)}: opened, schema {latest()}.")


def _no_board_yet(path: Path) -> Finding:
    above = next(each for each in path.parents if each.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        mend = f"chmod u+rwx {shlex.quote(str(above))}, or use --board"
        return wrong(f"dugnad cannot make a board in {above}.", mend)
    return ok(f"There is no board at {path} yet; `dugnad add` or `dugnad run` makes one.")


def _schema(path: Path) -> int:
    """The schema number in the file's header; 0 if the WAL has changes, since it may then be out of date."""
    log = path.with_name(f"{path.name}-wal")
    with path.open("rb") as file:
        head = file.read(64)
    known = head.startswith(b"SQLite format 3\0") and not (log.exists() and log.stat().st_size)
    return int.from_bytes(head[60:64], "big") if known else 0


async def trust(scene: Scene) -> Finding | None:
    """Whether the user has accepted what the project brings. A board that the user typed needs no acceptance."""
    if scene.project is None:
        return None
    accepted = Accepted(scene.environment)
    settings = flat(scene.project.given)
    new = [] if not settings or accepted.has_settings(scene.project.root, settings) else ["dugnad.toml"]
    typed = scene.board_given or scene.environment.get("DUGNAD_BOARD")
    if scene.board is not None and not typed:
        new += [] if accepted.has_board(where_of(scene.url), await scene.board.identity()) else ["board"]
    scene.accepted = not new and (scene.board is not None or scene.no_board or bool(typed))
    says = f"You have not accepted the project's {' and its '.join(new)}, so dugnad does not use it."
    return warning(says, "dugnad trust") if new else None


async def write(_: Scene, board: Board) -> Finding:
    await board.show(HUMAN, [0])  # There is no such message, so this is an empty transaction.
    return ok("The board can be written.")


def disk(scene: Scene) -> Finding | None:
    path = file_of(scene.url) if scene.url else None
    if path is None:
        return None
    above = next(each for each in path.parents if each.exists())
    if kind := network_filesystem(above.resolve(), read_mounts()):
        says = f"{above} is on a network file system ({kind}), where SQLite can lose writes."
        return wrong(says, "DUGNAD_BOARD=postgresql://HOST/DATABASE, or a path on a local disk")
    free = shutil.disk_usage(above).free
    says = f"{free / 1024**3:,.1f} GiB are free in {above}."
    if free < _SPACE_LOW:
        return Finding("", "wrong" if free < _SPACE_LEAST else "warning", says, "free some space")
    if scene.board is not None and not path.with_name(f"{path.name}-wal").exists():
        return wrong(f"SQLite's WAL does not work in {above}.", "use a path on a local disk")
    return ok(f"A local disk. {says}")


async def size(scene: Scene, board: Board) -> Finding:
    size, large = await board.size_bytes(), scene.board_bytes_large
    says = f"The size of the board is {size / 1024**2:,.1f} MiB."
    if size < large:
        return ok(says)
    return warning(f"{says[:-1]}; a small board is faster to copy and to search.", "dugnad prune")


async def clocks(scene: Scene, board: Board) -> Finding:
    before = scene.now_ms()
    theirs = await board.now_ms()
    skew = theirs - (before + scene.now_ms()) // 2
    if abs(skew) > _SKEW_MS_MAX:
        says = f"This machine's clock is {abs(skew) / 1000:,.1f} s {'behind' if skew > 0 else 'ahead of'} the board's."
        return warning(says, "timedatectl set-ntp true")
    last = await board.events(await board.last_event() - 1)
    if last and last[-1].at > theirs + _SKEW_MS_MAX:
        says = "The last event on the board is in the future: a clock was set back, and leases and delays are wrong."
        return wrong(says, "timedatectl set-ntp true")
    return ok("This machine and the board agree on the time.")


# The team.


async def hosts(scene: Scene, board: Board) -> Finding:
    hosts = await board.hosts()
    alive = sum(host.alive for host in hosts)
    gone = {host.id for host in hosts if not host.alive}
    ready = [task for task in scene.tasks if task.state == "ready"]
    left = [task for task in scene.tasks if task.state == "claimed" and task.host in gone]
    if left:
        return warning(f"A lost host still holds {_ids(left)}.", "dugnad work")
    if ready and not alive:
        return warning(f"Tasks are ready, and no host is running: {_ids(ready)}.", "dugnad work")
    return ok(f"{alive} running, {len(gone)} lost.")


async def answers(_: Scene, board: Board) -> Finding | None:
    if not (asked := await board.requests()):
        return None
    which = _few(f"m{each.id} from {each.sender}{f' about #{each.task}' if each.task else ''}" for each in asked)
    return warning(f"These wait for your answer: {which}.", "dugnad inbox")


async def budgets(scene: Scene, board: Board) -> Finding:
    for root in sorted({task.root for task in scene.tasks})[:_ROOTS_MAX]:
        if (account := await board.budget(root)).held:
            option = "minutes" if account.held == "seconds" else account.held
            says = f"{root_name(root)} has reached its cap on {account.held}, so no task under it can be claimed."
            return warning(says, f"dugnad budget {budget_id(root)} --{option} N")
    return ok("No goal has reached its cap.")


async def lanes(scene: Scene, board: Board) -> Finding:
    """Tasks that no teammate of the board or the project may claim."""
    team = [mate for mate in await board.team() if mate.status not in ("stopped", "failed")]
    names, roles = {mate.name for mate in team}, {role for mate in team for role in mate.roles}
    if scene.project is not None:  # A host adds these when there is work for them.
        names |= {member.name for member in scene.project.members}
        roles |= {role for member in scene.project.members for role in member.roles} | set(scene.project.roles)
    for task in scene.tasks:
        if task.assignee is not None and task.assignee not in names:
            says = f"#{task.id} is for {task.assignee}, who is not on the team."
            return warning(says, shlex.join(["dugnad", "spawn", task.assignee]))
        if task.assignee is None and task.role is not None and task.role not in roles:
            says = f"#{task.id} is for the role {task.role}, which no teammate has."
            return warning(says, shlex.join(["dugnad", "spawn", "NAME", "--role", task.role]))
    return ok("Every open task has a teammate that may claim it.")


async def teammates(_: Scene, board: Board) -> Finding:
    team = await board.team()
    if failed := [mate for mate in team if mate.status == "failed"]:
        says = _few(f"{mate.name} failed: {mate.reason or 'the reason is not known'}" for mate in failed)
        return warning(f"{says.rstrip('.')}.", shlex.join(["dugnad", "spawn", failed[0].name]))
    return ok(f"{len(team)} on the board, none failed.")


async def cooldowns(_: Scene, board: Board) -> Finding | None:
    if not (resting := await board.cooldowns()):
        return None
    says = _few(f"{each.key} cools down until {clock(each.until)}: {each.reason}" for each in resting)
    return warning(f"{says.rstrip('.')}.", "wait, or use another key")


def shown_url(url: str) -> str:
    """A board's address without the password in it."""
    before, at, after = url.rpartition("@")
    scheme, _, user = before.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{after}" if at else url


def _few(words: Iterable[str]) -> str:
    found = list(words)
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return "; ".join(found[:_NAMED_MAX]) + more


def _ids(tasks: Iterable[Task]) -> str:
    return _few(f"#{task.id}" for task in tasks).replace(";", ",")
