"""Running commands in a workspace: `bash`, in a sandbox or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..workspace.sandbox import Ran, Sandbox
from .tool import Tool

SECONDS_MAX = 110.0  # A little less than a tool's own time, so that the sandbox is the one to say so.
OUTPUT_BYTES_MAX = 1024 * 1024


def command_tools(sandbox: Sandbox, tree: Path, *, environment: Mapping[str, str] | None = None) -> tuple[Tool, ...]:
    """For one tree. `environment` is all that commands see of it besides what every one has."""

    async def bash(command: str, seconds: float = SECONDS_MAX) -> str:
        """Run a command of the shell in the workspace, and wait for its end. It has no network, sees no secrets, and
        can change nothing outside the workspace. What it leaves running is ended with it.

        Args:
            command: The command, as for bash -c.
            seconds: After so many it is ended.
        """
        ran = await sandbox.run(
            command, tree=tree, seconds=max(1.0, min(seconds, SECONDS_MAX)), output_bytes_max=OUTPUT_BYTES_MAX,
            environment=environment,
        )  # fmt: skip
        return ran_text(ran)

    return (Tool(bash),)


def ran_text(ran: Ran) -> str:
    """How it ended, then what it printed."""
    how = f"ended after {ran.seconds:.1f} s: it took too long" if ran.timed_out else f"exit code {ran.code}"
    cut = ", output shortened" if ran.shortened else ""
    refused = "".join(f"\n[network: {each}]" for each in ran.refused)
    return f"[{how}{cut}]{refused}\n{ran.output.decode(errors='replace')}".rstrip()
