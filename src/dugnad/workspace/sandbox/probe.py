"""What this machine can do, found by real attempts; and the one command that mends what is missing."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..programs import find_program

Level = Literal["strict", "none"]

STRICT_SAYS = "Commands run in a strict sandbox: one writable tree, no network."
NONE_SAYS = "Shell tools are refused."
_PROBE_SECONDS = 20.0

_MUST_WORK = 'true > written && rm written && test "$(echo started | cat)" = started'
_MUST_NOT = (  # Each would be a hole by itself.
    "cat {secret}",
    "true > /usr/written",
    "true > dugnad.toml",
    "mkdir .dugnad/inside",
    "mkdir .git/hooks",
    "unshare -U true",
    "test $(ls -d /proc/[0-9]* | wc -l) -gt 12",
    "tail -n +3 /proc/net/dev | grep -qv ' lo:'",
)
_FIRST_CODE = 100  # Of the command that tries them all: with this one the first was not as it must be.
_INSTALL = (
    "sudo apt-get install bubblewrap", "sudo dnf install bubblewrap", "sudo pacman -S bubblewrap",
    "sudo zypper install bubblewrap", "sudo apk add bubblewrap", "sudo xbps-install bubblewrap",
    "sudo emerge sys-apps/bubblewrap", "nix-env -iA nixpkgs.bubblewrap",
)  # fmt: skip
# Switches that keep user namespaces from ordinary users: the value that does, and the one that does not.
_SWITCHES = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("user/max_user_namespaces", "0", "10000"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What this machine can do. `mend` is the one command that helps, where there is one."""

    level: Level
    says: str
    mend: str = ""
    bwrap: Path | None = None


def find_bwrap(path: str, *, outside: Path, beside: Path = Path(sys.executable)) -> Path | None:
    """Look on the search path but not in the project, then beside the interpreter, where the set-up puts a copy."""
    if found := find_program("bwrap", path, outside=outside):
        return Path(found)
    copy = beside.parent / "bwrap"
    return copy if os.access(copy, os.X_OK) else None


def how_to_install(path: str, *, system: str = sys.platform) -> str:
    """The one command that installs bubblewrap on this machine."""
    if not system.startswith("linux"):
        return "run dugnad on Linux, in a virtual machine or a container"
    found = (command for command in _INSTALL if shutil.which(command.removeprefix("sudo ").split()[0], path=path))
    return next(found, "install bubblewrap 0.8 or newer with this system's package tool")


async def find_hole(run: Callable[..., Awaitable[Any]]) -> str | None:
    """Try what must work and what must not, with the sandbox's own `run`. None: it holds.

    All attempts are one command: to start a sandbox for each of them would take most of the start of a run.
    """
    with tempfile.TemporaryDirectory(prefix="dugnad-probe-") as made:
        tree, secret = Path(made, "tree"), Path(made, "secret")
        os.mkdir(tree)
        os.close(os.open(secret, os.O_CREAT, 0o644))
        attempts = [_MUST_WORK, *(text.format(secret=shlex.quote(str(secret))) for text in _MUST_NOT)]
        tried = [
            f"( {each} ) {'&&' if number else '||'} exit {_FIRST_CODE + number}" for number, each in enumerate(attempts)
        ]
        command = "\n".join([*tried, "exit 0"])
        ran = await run(command, tree=tree, seconds=_PROBE_SECONDS, output_bytes_max=2_000)
    if ran.code == 0:
        return None
    if not 0 <= (number := ran.code - _FIRST_CODE) < len(attempts):
        return f"what tries to leave it ended with the code {ran.code}"
    return f"`{attempts[number]}` {'was not stopped' if number else 'did not work'}"


def how_to_mend(trouble: str, install: str) -> str:
    """What to do about an error of bubblewrap; empty where only the person who runs this container can do something."""
    if "nknown option" in trouble:
        return f"{install} (0.8 or newer is needed)"
    for name, closed, opened in _SWITCHES:
        with suppress(OSError):
            if Path("/proc/sys", name).read_text().strip() == closed:
                return f"sudo sysctl -w {name.replace('/', '.')}={opened}"
    return ""
