"""The project's check, run before anything is spent.

If the check fails on the unchanged project, every attempt would fail it too. The user's state folder remembers the
verdict by the tree and the words of the check. A failed check runs again, since the fix may be outside of the tree.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..config.project import Project
from ..config.servers import replace_file
from ..errors import ToolError
from ..safe_open import held, user_state
from ..team.workspaces.workspace import CHECK_SECONDS_MAX
from ..text import one_line, plain, shorten
from .accepted import digest
from .base_trees import Base
from .command import console
from .signals import stopping
from .workspaces import Given, Say, Wishes

_KEPT_MAX = 50
_BYTES_MAX = 256 * 1024
_SHOWN_CHARS_MAX = 6_000
_DRAW_SECONDS = 0.5
_KINDS = {"green": bool, "where": str, "command": str, "output": str, "seconds": float, "remembered": bool}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckVerdict:
    """What the check says about the unchanged project."""

    green: bool
    where: str
    command: str  # The one that failed, or else all of them.
    output: str = ""
    seconds: float = 0.0
    remembered: bool = False  # From an earlier run over the same tree.

    def page(self) -> str:
        """What a person is told when it failed: what it printed, and what to do."""
        printed = "\n".join(f"  {each}" for each in plain(shorten(self.output, _SHOWN_CHARS_MAX)).splitlines())
        return (
            f"The project's check fails on {plain(self.where)} before anybody has changed anything: "
            f"`{one_line(self.command, 200)}`\n{printed}\n"
            "Nothing was spent. Fix it and run again; or go on with --red-base, which tells every teammate that the "
            "check failed before."
        )

    def shape(self) -> dict[str, object]:
        return {**asdict(self), "output": shorten(self.output, _SHOWN_CHARS_MAX)}


class Interrupted(Exception):
    """The person stopped it."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of the check. If it has a code, the run ends there."""

    code: int = 0
    says: str = ""
    shape: dict[str, object] | None = None
    red: bool = False


async def checked_base(project: Project, given: Given, wishes: Wishes, *, say: Say, quiet: bool) -> Checked:
    """If the check fails, a person has to fix the project, so the run does not begin; with --red-base it does."""
    memory = memory_of(project.root, os.environ)
    try:
        verdict = await preflight(given.base, memory, red_base=wishes.red_base, say=say, quiet=quiet)
    except Interrupted:
        return Checked(130, "Interrupted. Nothing was begun and nothing was spent.")
    if verdict is None or verdict.green:
        return Checked(shape=None if verdict is None else verdict.shape())
    if not wishes.red_base:
        return Checked(1, verdict.page(), verdict.shape())
    say(f"The project's check fails on {plain(verdict.where)} already; every teammate is told so.")
    return Checked(shape=verdict.shape(), red=True)


async def preflight(base: Base | None, memory: Path, *, red_base: bool, say: Say, quiet: bool) -> CheckVerdict | None:
    """Run the project's check, unless it is known to succeed. None: there is no check, or it cannot be run."""
    if base is None or not base.shop.project_checks or base.shop.sandbox is None:
        return None
    checks = base.shop.project_checks
    try:
        key = _key(base, await base.name())
        known = await asyncio.to_thread(_recall, memory, key)
        if known is not None and (known.green or red_base):
            return known
        command = one_line(" && ".join(checks), 200)
        say(f"Before anything is spent, the project's check runs on {plain(base.where)}: `{command}`")
        async with stopping("the run was stopped", at_once=False) as stop:  # The command ends and its tree is removed.
            verdict = await stop.unless(_run(base, quiet=quiet))
        if verdict is None:
            raise Interrupted
        key = _key(base, await base.name())  # With --in-place the check itself may have changed it.
        await asyncio.to_thread(_remember, memory, key, verdict)
    except (ToolError, OSError) as trouble:
        say(f"The check could not be run, so it is not known whether it succeeds: {plain(trouble)}")
        return None
    if verdict.green:
        say(f"The check succeeded ({verdict.seconds:.1f} s).")
    return verdict


async def _run(base: Base, *, quiet: bool) -> CheckVerdict:
    checks = base.shop.project_checks
    clock = asyncio.get_running_loop().time
    async with base.tree() as (tree, readable):
        began = clock()
        async with _live(f"Checking {base.where}: {' && '.join(checks)}", quiet=quiet) as on_output:
            red = await base.shop.run_checks(
                checks, tree, seconds=CHECK_SECONDS_MAX, readable=readable, on_output=on_output
            )
        seconds = round(clock() - began, 3)
    if red is None:
        return CheckVerdict(green=True, where=base.where, command=" && ".join(checks), seconds=seconds)
    return CheckVerdict(green=False, where=base.where, command=red.command, output=red.output, seconds=seconds)


# What a person sees meanwhile.


class _Tail:
    """The last line of what a command prints."""

    def __init__(self) -> None:
        self._end = b""

    def __call__(self, more: bytes) -> None:
        self._end = (self._end + more)[-2_000:]

    @property
    def line(self) -> str:
        lines = [each for each in self._end.decode(errors="replace").splitlines() if each.strip()]
        return lines[-1] if lines else ""


@asynccontextmanager
async def _live(what: str, *, quiet: bool) -> AsyncIterator[_Tail]:
    tail = _Tail()
    if quiet or not sys.stdout.isatty():
        yield tail
        return
    from rich.live import Live
    from rich.text import Text

    clock = asyncio.get_running_loop().time
    began, screen = clock(), console()

    async def draw(live: Live) -> None:
        while True:
            width = max(20, screen.size.width - 1)
            head = one_line(f"{what}  {clock() - began:.0f} s", width)
            live.update(Text(f"{head}\n{one_line(tail.line, width)}", style="dim"), refresh=True)
            await asyncio.sleep(_DRAW_SECONDS)

    with Live(console=screen, auto_refresh=False, transient=True) as live:
        drawing = asyncio.create_task(draw(live))
        try:
            yield tail
        finally:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)


# What is remembered.


def memory_of(root: Path, environment: Mapping[str, str]) -> Path:
    """The user's own file about the project at `root`; a file in the project may come from anyone."""
    return user_state(environment, "preflight") / f"{digest(os.path.realpath(root))}.json"


def _key(base: Base, name: str) -> str:
    return digest(json.dumps([name, base.where, base.shop.project_checks, str(base.shop.prefix)]))[:32]


def _recall(file: Path, key: str) -> CheckVerdict | None:
    """None: there is no verdict, or another version wrote it."""
    found = _read(file).get(key)
    if not isinstance(found, dict) or {name: type(each) for name, each in found.items()} != _KINDS:
        return None
    return replace(CheckVerdict(**found), remembered=True)


def _read(file: Path) -> dict[str, object]:
    """The verdicts in the file; none if it cannot be read."""
    try:
        with held(file.parent) as inside:
            descriptor = os.open(file.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=inside)
        with os.fdopen(descriptor, "rb") as opened:
            found = json.loads(opened.read(_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(file: Path, key: str, verdict: CheckVerdict) -> None:
    """Add it to the others. The file is replaced in one step, since several runs may start at once."""
    with suppress(OSError):
        with held(file.parent, make=True):
            pass
        told = {**asdict(verdict), "output": shorten(verdict.output, _SHOWN_CHARS_MAX // 2)}
        kept = [*((name, each) for name, each in _read(file).items() if name != key), (key, told)][-_KEPT_MAX:]
        replace_file(file, json.dumps(dict(kept)))
