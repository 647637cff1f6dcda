"""How commands of one tree are run: within their time, and heard as they go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...text import one_line
from ...workspace.sandbox.sandbox import CommandResult, Sandbox
from ..context import Context
from .outputs import KEPT_BYTES, Echo

MARGIN_SECONDS = 10.0  # What a call may take beyond its command, so that the sandbox is the one to end it.
_COMMAND_CHARS = 40

OnOutput = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Shell:
    sandbox: Sandbox
    tree: Path
    environment: Mapping[str, str] | None
    readable: tuple[Path, ...] = ()
    hosts: tuple[str, ...] = ()  # That its commands can reach.

    @property
    def streamed_bytes_max(self) -> int:
        return self.sandbox.limits.streamed_bytes_max

    async def in_call(self, context: Context, command: str, seconds: float, hear: OnOutput | None) -> CommandResult:
        """Within the time the call was given, and with its last line shown while it runs."""
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
    """The command is shown from its start, its last line as there is one."""
    short = f"{name} {one_line(command, _COMMAND_CHARS)}".strip()
    context.say(short)
    return Echo(lambda line: context.say(f"{short}\n{line}"))


def time_of(context: Context, seconds: float) -> float:
    """What was asked for, or less, where the goal has no more: a call must be over before it is stopped."""
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
