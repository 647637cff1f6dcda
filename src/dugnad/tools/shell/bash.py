"""The tools `bash` and `jobs`: commands in a workspace, in a sandbox or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...board import Board
from ...errors import ToolError
from ...prompts import tell
from ...settings import ShellLimits
from ...text import Told
from ...types import Claim
from ...workspace.sandbox.sandbox import CommandResult, Sandbox
from ..context import Context, Piece
from ..tool import Tool
from .jobs import Jobs
from .outputs import Log, Outputs, in_short, not_kept
from .runner import MARGIN_SECONDS, Shell, heading, within

OUTPUT_BYTES_MAX = 1024 * 1024  # Of an output that is kept nowhere else.


class ShellTools:
    """The commands of one attempt: `tools` are for its teammate, and `close` ends what still runs.

    `environment` are further variables for the commands, `outputs` is the folder for their output, with a folder for
    each task, and `hosts` are the hosts that they can reach.
    """

    def __init__(
        self, sandbox: Sandbox, tree: Path, *, claim: Claim, board: Board,
        outputs: Path, environment: Mapping[str, str] | None = None, readable: tuple[Path, ...] = (),
        hosts: tuple[str, ...] = (), limits: ShellLimits | None = None,
    ) -> None:  # fmt: skip
        self.limits = limits or ShellLimits()
        self._shell = Shell(sandbox, tree, environment, readable, hosts)
        self._outputs = Outputs(outputs / str(claim.task.id), self.limits, sandbox.limits.streamed_bytes_max)
        self._jobs = Jobs(self._shell, claim, board, self._outputs, self.limits)

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool(self.bash, prompt="bash", seconds=self._seconds_of_bash, keeper=self),
            Tool(self.jobs, prompt="jobs", keyed=True, seconds=self._seconds_of_jobs, keeper=self),
        )

    def _seconds_of_bash(self, arguments: Mapping[str, Any]) -> float | None:
        return None if arguments["background"] else self._asked(arguments["seconds"]) + MARGIN_SECONDS

    def _seconds_of_jobs(self, arguments: Mapping[str, Any]) -> float | None:
        return within(arguments["seconds"], self.limits.wait_seconds_max) + MARGIN_SECONDS

    def _asked(self, seconds: float | None) -> float:
        return within(self.limits.seconds if seconds is None else seconds, self.limits.seconds_max)

    async def bash(self, context: Context, command: str, seconds: float | None = None, background: bool = False) -> str:
        if background:
            return await self._jobs.start(command, seconds)
        log = self._outputs.log_of_call(context.key)
        ran: CommandResult | None = None
        try:
            ran = await self._shell.in_call(context, command, self._asked(seconds), log.add)
        finally:
            self._outputs.close(log, ran)
        return _shown(ran, log, context.limits.tool_chars_max)

    async def jobs(self, context: Context, wait: str = "", stop: str = "", seconds: float = 60.0) -> str:
        if wait and stop:
            raise ToolError(tell("results.wait_or_stop"))
        if stop:
            return await self._jobs.stop(stop)
        if wait:
            return await self._jobs.wait(context, wait, within(seconds, self.limits.wait_seconds_max))
        return self._jobs.listed()

    def piece(self, output: str, start: int, most: int) -> Piece | None:
        return self._outputs.piece(output, start, most)

    def unfinished(self) -> Told:
        return self._jobs.unfinished()

    @property
    def running(self) -> list[str]:
        """The names of the jobs that have not ended."""
        return self._jobs.running

    async def end_jobs(self) -> None:
        """End every job with everything that it started, so that nothing changes the tree during a check."""
        await self._jobs.end()

    async def close(self) -> None:
        """End every job, and allow no new ones. When this returns, nothing runs, and no notice comes."""
        await self._jobs.close()


def _shown(ran: CommandResult, log: Log, most: int) -> str:
    """What the model reads. A long output is shortened, and the model is told where the whole is kept."""
    if log.trouble:
        return ran_text(ran) + not_kept(log)
    text = ran.output.decode(errors="replace")
    short = in_short(text, most, size=log.heard, output=log.output)
    kept = f", output shortened: the whole is kept in {log.name}" if short != text else ""
    return f"{heading(ran, kept)}\n{short}".rstrip()


def ran_text(ran: CommandResult) -> str:
    """How the command ended, and its output."""
    cut = ", output shortened" if ran.shortened else ""
    return f"{heading(ran, cut)}\n{ran.output.decode(errors='replace')}".rstrip()
