"""A review by an external agent takes two runs, because code of the reviewed work may run beside the first one.

In the first run the agent looks at the work and tries it out. What that run prints is a report, and whatever ran beside
it may have written it. The second run, with an empty folder, gives the verdict: nothing of the work is in its sandbox.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from ...errors import DugnadError
from ...models.port import Reply
from ...prompts import tell
from ...text import NOTHING, Told, clean, quote
from ...types import Task
from ...workspace.sandbox.sandbox import Sandbox
from ..conversation import Conversation
from .decide import run_of

Part = Literal["work", "look", "verdict"]
# Without what the work's own attributes and the tree's settings could make of it.
_DIFF = "git diff --no-color --no-ext-diff --no-textconv --text HEAD^ HEAD 2>/dev/null | head -c {most}"
_DIFF_BYTES_MAX = 80_000
_DIFF_SECONDS = 60.0


def part_of(task: Task, talk: Conversation) -> Part:
    """Which part of a task the next run is."""
    if task.kind != "review":
        return "work"
    looked = any(isinstance(each, Reply) and run_of(each)[0] == "looked" for each in talk.entries)
    return "verdict" if looked else "look"


async def shown_change(sandbox: Sandbox, tree: Path, readable: tuple[Path, ...], *, said: Told) -> Told:
    """The change, for the run that has no tree, unless all of it was said. It is taken before anything of the work can
    run."""
    command = _DIFF.format(most=_DIFF_BYTES_MAX + 1)
    try:
        ran = await sandbox.run(
            command, tree=tree, seconds=_DIFF_SECONDS, output_bytes_max=_DIFF_BYTES_MAX + 1, readable=readable
        )
    except DugnadError:
        return NOTHING
    diff = clean(ran.output[:_DIFF_BYTES_MAX].decode(errors="replace")).rstrip("\n")
    if not diff or ran.code != 0 or f"\n{quote(diff)}\n" in f"\n{said}\n":
        return NOTHING
    if len(ran.output) > _DIFF_BYTES_MAX:
        return tell("external.change_begins", most=_DIFF_BYTES_MAX // 1000, diff=diff)
    return tell("external.change", diff=diff)


@contextmanager
def empty_folder(sandbox: Sandbox) -> Iterator[Path]:
    """A folder for one run, with nothing in it and nothing kept of it."""
    with tempfile.TemporaryDirectory(prefix="dugnad-verdict-", ignore_cleanup_errors=True) as made:
        if sandbox.user is not None:
            os.chown(made, sandbox.user, -1)
        yield Path(made)
