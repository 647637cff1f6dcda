"""Runs a teammate's commands: in a sandbox, or not at all.

`probe` finds out by real attempts what this machine can do. A `Sandbox` then starts commands through one small helper
process (`starter`), under the policy of `profile`. What goes wrong in making the sandbox fails the command with a
ToolError; there is no second way to run it. Only a person who asked for it by name gets commands that run bare.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import platform
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ..errors import BadInput, ToolError
from .profile import SYSTEM, CommandLimits, Machine, Policy, Profile, environment_for, strict

Level = Literal["strict", "none"]

_COMMAND_BYTES_MAX = 128 * 1024 - 1  # The kernel's bound on one argument.
_ANSWER_BYTES_MAX = 1 << 30
_PROBE_SECONDS = 20.0
_CLOSE_SECONDS = 10.0
_TIMED_OUT = 124  # The code that timeout(1) made known.
_NOT_TREES = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var")
# From here on the count of processes is that of the namespace. Some shells know it by one letter, some by the other.
_SHELL = 'ulimit -u "$1" 2>/dev/null || ulimit -p "$1" 2>/dev/null || exit 126; exec "$0" -c "$2"'

# What in a tree can make git or dugnad run a program later, outside; and what stands there while it is missing.
# None: a folder. An empty commondir would be an error to git; one that says "." changes nothing.
_GIT: Mapping[str, str | None] = {
    "hooks": None, "modules": None, "worktrees": None, "config": "", "config.worktree": "", "commondir": ".",
}  # fmt: skip

_ATTEMPTS = (
    # What must work.
    ('true > written && rm written && test "$(echo started | cat)" = started', True),
    # What must not: each would be a hole by itself.
    ("cat {secret}", False),
    ("true > /usr/written", False),
    ("true > dugnad.toml", False),
    ("mkdir .dugnad/inside", False),
    ("mkdir .git/hooks", False),
    ("unshare -U true", False),
    ("test $(ls -d /proc/[0-9]* | wc -l) -gt 12", False),
    ("tail -n +3 /proc/net/dev | grep -qv ' lo:'", False),
)  # fmt: skip
_INSTALL = (
    ("apt-get", "sudo apt-get install bubblewrap"),
    ("dnf", "sudo dnf install bubblewrap"),
    ("pacman", "sudo pacman -S bubblewrap"),
    ("zypper", "sudo zypper install bubblewrap"),
    ("apk", "sudo apk add bubblewrap"),
    ("xbps-install", "sudo xbps-install bubblewrap"),
    ("emerge", "sudo emerge sys-apps/bubblewrap"),
    ("nix-env", "nix-env -iA nixpkgs.bubblewrap"),
)
# Systems that keep user namespaces from ordinary users: the switch, how it stands then, and how it should.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command ended, and what it said: standard output and errors in the order they came."""

    code: int
    output: bytes
    timed_out: bool
    shortened: bool
    seconds: float


def find_bwrap(path: str, *, beside: Path = Path(sys.executable)) -> Path | None:
    """On the given search path, or beside the interpreter, where the set-up puts a copy."""
    if found := shutil.which("bwrap", path=path):
        return Path(found)
    copy = beside.parent / "bwrap"
    return copy if os.access(copy, os.X_OK) else None


def how_to_install(path: str, *, system: str = sys.platform) -> str:
    """The one command that brings bubblewrap to this machine."""
    if not system.startswith("linux"):
        return "run dugnad on Linux, in a virtual machine or a container"
    for program, command in _INSTALL:
        if shutil.which(program, path=path):
            return command
    return "install bubblewrap 0.8 or newer with this system's package tool"


async def probe(
    path: str, *, beside: Path = Path(sys.executable), bwrap: Path | None = None, user: int | None = None
) -> Probe:
    """Find out what this machine can do, by attempts and not by versions. `path` is where programs are looked for."""
    install = how_to_install(path)
    if not sys.platform.startswith("linux"):
        return Probe(level="none", says="The sandbox is made for Linux; shell tools are refused.", mend=install)
    bwrap = bwrap or find_bwrap(path, beside=beside)
    if bwrap is None:
        says = "bubblewrap is not installed; shell tools are refused without it."
        return Probe(level="none", says=says, mend=install)
    wanted = Probe(level="strict", says="Commands run in a strict sandbox: one writable tree, no network.", bwrap=bwrap)
    try:
        hole = await _find_hole(Sandbox(wanted, user=user))
    except ToolError as trouble:
        return Probe(level="none", says=f"{trouble} Shell tools are refused.", mend=_mend(str(trouble), install))
    if hole:
        return Probe(level="none", says=f"The sandbox does not hold here: {hole}. Shell tools are refused.")
    return wanted


async def _find_hole(sandbox: Sandbox) -> str | None:
    with tempfile.TemporaryDirectory(prefix="dugnad-probe-") as made:
        tree, secret = Path(made, "tree"), Path(made, "secret")
        os.mkdir(tree)
        os.close(os.open(secret, os.O_CREAT, 0o644))
        if sandbox.user is not None:
            os.chmod(made, 0o755)
            os.chown(tree, sandbox.user, sandbox.user)
        try:
            for text, works in _ATTEMPTS:
                command = text.format(secret=secret)
                ran = await sandbox.run(command, tree=tree, seconds=_PROBE_SECONDS, output_bytes_max=2_000)
                if (ran.code == 0) != works:
                    return f"`{command}` {'did not work' if works else 'was not stopped'}"
        finally:
            await sandbox.close()
    return None


def _mend(trouble: str, install: str) -> str:
    """What to do about bubblewrap's own words, or nothing where only the person who runs this container can."""
    if "nknown option" in trouble:
        return f"{install} (0.8 or newer is needed)"
    for name, closed, opened in _SWITCHES:
        try:
            if Path("/proc/sys", name).read_text().strip() == closed:
                return f"sudo sysctl -w {name.replace('/', '.')}={opened}"
        except OSError:
            pass
    return ""


def protect(policy: Policy) -> tuple[Policy, tuple[tuple[str, str | None], ...]]:
    """Keep a tree's dangerous paths from the command, also those that are not there yet; and what to hold them with.

    `.git` itself is a mount of its own where it is a repository: otherwise it could be moved away, with all that is
    protected in it, and made anew.
    """
    tree = policy.tree
    git, own, settings = tree / ".git", tree / ".dugnad", tree / "dugnad.toml"
    holds: dict[Path, str | None] = {own: None, settings: ""}
    read_only = [settings]
    anchored: tuple[Path, ...] = ()
    if os.path.lexists(git / "HEAD"):
        anchored = (git,)
        holds |= {git / name: content for name, content in _GIT.items()}
        read_only += [git / name for name in _GIT]
    else:
        # A file that points to a repository; or none, or another command's placeholder. None of them is to become one.
        read_only.append(git)
        if not git.is_file():
            holds[git] = None
    for each in (git, *holds):
        if each.is_symlink():
            raise ToolError(
                f"{each} is a symbolic link, so the sandbox cannot protect it; put what it points to there."
            )
    policy = replace(policy, read_only=tuple(read_only), anchored=anchored, hidden=(own,))
    return policy, tuple((str(path), content) for path, content in holds.items())


class Sandbox:
    """Where commands run. Start it, or let the first command do so; close it when there are no more."""

    def __init__(
        self,
        found: Probe,
        *,
        unsafe: bool = False,
        readable: tuple[Path, ...] = (),
        limits: CommandLimits | None = None,
        user: int | None = None,
        profile: Callable[[Policy, Machine], Profile] = strict,
    ) -> None:
        """`readable` are toolchains outside /usr. `unsafe`: a person typed that commands may run bare where there is no
        sandbox. `user`: where dugnad runs as root, the ordinary user that commands run as; trees must be that user's.
        """
        self.profile = profile
        self.found = found
        self.bare = found.level == "none" and unsafe
        self.readable = readable
        self.limits = limits or CommandLimits()
        self.user = user
        self._starter: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._listeners: dict[int, Callable[[bytes], None]] = {}
        self._number = 0
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start the helper, if it does not run. ToolError: there is no sandbox, and nobody said to do without."""
        if self.found.level == "none" and not self.bare:
            mend = f" Run: {self.found.mend}" if self.found.mend else ""
            raise ToolError(f"{self.found.says}{mend}")
        async with self._starting:
            if self._starter is not None and self._starter.returncode is None:
                return
            # Its environment is all but empty, so there is nothing to be read from it; -P and the folder keep files of
            # the project from being imported. In a session of its own, it does not hear the terminal's Ctrl-C.
            self._starter = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "dugnad.workspace.starter",
                env={"PYTHONPATH": str(Path(__file__).parents[2])}, cwd="/", start_new_session=True,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                limit=_ANSWER_BYTES_MAX,
            )  # fmt: skip
            self._listening = asyncio.create_task(self._listen(self._starter))

    async def close(self) -> None:
        """End what still runs, and the helper. It may be started again."""
        starter, self._starter = self._starter, None
        if starter is None or starter.stdin is None:
            return
        starter.stdin.close()
        try:
            await asyncio.wait_for(starter.wait(), _CLOSE_SECONDS)
        except TimeoutError:
            starter.kill()
            await starter.wait()
        if self._listening is not None:
            await self._listening

    async def run(
        self,
        command: str,
        *,
        tree: Path,
        seconds: float,
        output_bytes_max: int,
        environment: Mapping[str, str] | None = None,
        network: bool = False,
        readable: tuple[Path, ...] = (),
        on_output: Callable[[bytes], None] | None = None,
    ) -> Ran:
        """Run a command of the shell in a tree, and wait until nothing of it is left.

        Its end, whatever it is, is a `Ran`; ToolError means that it was not run. `network` gives it the machine's own.
        `on_output` hears what it says as it comes, up to a bound.
        """
        policy = Policy(
            tree=_checked_tree(tree),
            readable=(*self.readable, *readable),
            environment=_checked_environment(environment or {}),
            network=network,
            limits=self.limits,
        )
        policy, holds = protect(policy)
        request = self._request(_checked_command(command), policy)
        request |= {"holds": () if self.bare else holds, "seconds": seconds, "output_bytes_max": output_bytes_max}
        request["streamed_bytes_max"] = self.limits.streamed_bytes_max if on_output else 0
        answer = await self._ask(request, on_output)
        if trouble := answer.get("trouble"):
            raise ToolError(f"The sandbox could not be made: {trouble}.")
        output = base64.b64decode(answer["output"])
        code = _TIMED_OUT if answer["timed_out"] else answer["code"]
        if code is None:  # Bubblewrap ended, and the command in it did not.
            said = output.decode(errors="replace").strip() or "it ended without a word"
            raise ToolError(f"The sandbox could not be made: {said.removeprefix('bwrap: ').rstrip('.')}.")
        return Ran(
            code=code,
            output=output,
            timed_out=answer["timed_out"],
            shortened=answer["shortened"],
            seconds=answer["seconds"],
        )

    def _request(self, command: str, policy: Policy) -> dict[str, Any]:
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        processes = (
            self.limits.processes_max if most == resource.RLIM_INFINITY else min(self.limits.processes_max, most)
        )
        shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
        request: dict[str, Any] = {"bare": self.bare, "user": self.user, "limits": asdict(self.limits)}
        if self.bare:
            return request | {
                "program": shell, "argv": [shell, "-c", command], "tree": str(policy.tree),
                "environment": environment_for(policy) | {"HOME": str(policy.tree)},
            }  # fmt: skip
        try:
            made = self.profile(policy, self._machine())
        except ValueError as error:
            raise ToolError(f"The sandbox could not be made: {error}") from None
        return request | {
            "program": str(self.found.bwrap),
            "argv": ["bwrap", "--", shell, "-c", _SHELL, shell, str(processes), command],
            "options": [word for each in made.arguments for word in each],
            "files": [(path, base64.b64encode(content).decode()) for path, content in made.files],
            "filter": base64.b64encode(made.filter).decode(),
        }

    def _machine(self) -> Machine:
        names = frozenset(name for name in os.listdir("/proc") if not name.isdigit())
        user = os.getuid() if self.user is None else self.user
        group = os.getgid() if self.user is None else self.user
        links = {each: os.readlink(each) for each in SYSTEM if os.path.islink(each)}
        return Machine(architecture=platform.machine(), proc=names, links=links, user=user, group=group)

    async def _ask(self, request: dict[str, Any], on_output: Callable[[bytes], None] | None) -> dict[str, Any]:
        await self.start()
        starter = self._starter
        assert starter is not None
        assert starter.stdin is not None
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        if on_output is not None:
            self._listeners[number] = on_output
        try:
            starter.stdin.write(_line({**request, "id": number}))
            await starter.stdin.drain()
            return await asyncio.shield(answer)
        except (BrokenPipeError, ConnectionResetError):
            raise ToolError("The helper that starts commands is gone; try again.") from None
        except asyncio.CancelledError:
            # Whoever cancels it may take the tree away next: not before nothing is left that works in it.
            starter.stdin.write(_line({"end": number}))
            await asyncio.wait([answer])
            raise
        finally:
            self._answers.pop(number, None)
            self._listeners.pop(number, None)

    async def _listen(self, starter: asyncio.subprocess.Process) -> None:
        assert starter.stdout is not None
        while line := await starter.stdout.readline():
            told = json.loads(line)
            answer, listener = self._answers.get(told["id"]), self._listeners.get(told["id"])
            if "said" in told:
                if listener is not None:
                    listener(base64.b64decode(told["said"]))
            elif answer is not None and not answer.done():
                answer.set_result(told)
        await starter.wait()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result({"trouble": "the helper that starts commands ended, and the command with it"})


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _checked_command(command: str) -> str:
    if "\0" in command:
        raise BadInput("A command cannot have a NUL character in it.")
    if len(command.encode(errors="surrogateescape")) > _COMMAND_BYTES_MAX:
        raise BadInput("The command is longer than 128 KiB; put it into a file of the tree and run that.")
    return command


def _checked_tree(tree: Path) -> Path:
    found = tree.resolve()
    if not found.is_dir():
        raise BadInput(f"{tree} is not a folder to work in.")
    if str(found) in _NOT_TREES:
        raise BadInput(f"{tree} is the system's; work in a folder of its own.")
    return found


def _checked_environment(environment: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise BadInput(f"{name!r} cannot be set in a command's environment.")
    return environment
