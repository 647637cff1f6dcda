"""Runs the commands of one tree within their time, and hands on their output as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...text import one_line
from ...workspace.sandbox.sandbox import CommandResult, Sandbox
from ..context import Context
from .outputs import KEPT_BYTES, Echo

MARGIN_SECONDS = 10.0  # A call may take this much longer than its command, so that the sandbox ends the command.
_COMMAND_CHARS = 40

OnOutput = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Shell:
    sandbox: Sandbox
    tree: Path
    environment: Mapping[str, str] | None
    readable: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()  # That its commands can reach.

    async def in_call(self, context: Context, command: str, seconds: float, hear: OnOutput | None) -> CommandResult:
        """Within the time of the call, and with the last line of its output shown while it runs."""
        echo = echo_of(context, command)

        def both(data: bytes) -> None:
            if hear is not None:
                hear(data)
            echo.hear(data)

        try:
            return await self.run(command, time_of(context, seconds), both)
        finally:
            echo.close()

    async def run(self, command: str, seconds: float, hear: OnOutput) -> CommandResult:
        return await self.sandbox.run(
            command, tree=self.tree, seconds=seconds, output_bytes_max=KEPT_BYTES,
            environment=self.environment, readable=self.readable, on_output=hear, hosts=self.hosts,
        )  # fmt: skip


def echo_of(context: Context, command: str, name: str = "") -> Echo:
    """Shows the command, and then also the last line of its output."""
    short = f"{name} {one_line(command, _COMMAND_CHARS)}".strip()
    context.say(short)
    return Echo(lambda line: context.say(f"{short}\n{line}"))


def time_of(context: Context, seconds: float) -> float:
    """The time that was asked for, or less if the goal has less left: the command must end before the call does."""
    if context.seconds is None:
        return seconds
    return min(seconds, max(1.0, context.seconds - min(MARGIN_SECONDS, context.seconds / 5)))


def now() -> float:
    return asyncio.get_running_loop().time()


def within(seconds: float, most: float) -> float:
    return max(1.0, min(seconds, most))


def how_ended(ran: CommandResult) -> str:
    return f"ended after {ran.seconds:.1f} s: it took too long" if ran.timed_out else f"exit code {ran.code}"


def heading(ran: CommandResult, more: str = "") -> str:
    """What stands above an output."""
    return "\n".join([f"[{how_ended(ran)}{more}]", *(f"[network: {each}]" for each in ran.refused)])
