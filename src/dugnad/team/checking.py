"""Running a task's check: in the sandbox, by the runtime and not by the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import ToolError
from ..tools.commands import OUTPUT_BYTES_MAX, ran_text
from ..types import Task
from ..workspace.sandbox import Sandbox
from .life import Check

_CHECK_SECONDS_MAX = 1_800.0


def check_in(sandbox: Sandbox, tree: Path, *, environment: Mapping[str, str] | None = None) -> Check:
    """A check that runs in this tree. What the sandbox refuses is red: "done" is never believed without it."""

    async def check(task: Task) -> str | None:
        try:
            ran = await sandbox.run(
                task.check or "", tree=tree, seconds=_CHECK_SECONDS_MAX, output_bytes_max=OUTPUT_BYTES_MAX,
                environment=environment,
            )  # fmt: skip
        except ToolError as refused:
            return str(refused)
        return None if ran.code == 0 and not ran.timed_out else ran_text(ran)

    return check
