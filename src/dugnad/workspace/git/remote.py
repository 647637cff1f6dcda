"""The one door to a git remote: look, fetch and push, at the one place that the user named.

To reach a remote git has to start other programs, so it cannot be behind all the walls of `command.py` here. Git still
reads no settings but ours and, for ssh and https, what the user's own files say about credentials and connections. It
writes objects and no names: the caller moves those. A repository in a folder is reached by a git of ours at both ends,
which can run nothing but git, so no hook runs there.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from ...logs import logger
from ...text import clean, one_line, pasted, shows
from ..programs import find_program
from . import private_repository
from .command import NO_WALLS, GitCall, ask, walls
from .git import ENVIRONMENT, Git, GitOutput
from .ownership import GitTrouble, refuse_strangers

T = TypeVar("T")
_LOG = logger(__name__)
_OUTPUT_BYTES_MAX = 16 * 1024**2
_PAUSE_SECONDS, _PAUSE_SECONDS_MAX = 0.5, 15.0  # Between two tries to reach the remote.
_SHELL = "/bin/sh"  # Git starts the git at the other end with it.
_LINE = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\t(refs/\S+)")
_SCP = re.compile(r"(?:[^\s/@:]+@)?[^\s/@:-][^\s/@:]*:(?!:)\S.*")
_HELPER = re.compile(r"[\w+.-]+::")  # Git would start a program of that name.
_LOCAL = ("localhost", "127.0.0.1", "::1")
# Of the user's variables that begin with GIT_, only these are passed on, and of their settings only those.
_PASSED = ("GIT_SSH_COMMAND", "GIT_SSH", "GIT_SSH_VARIANT", "GIT_ASKPASS")
_TAKEN = ("credential.", "http.", "core.sshcommand")
# At the other end: nothing of that repository's settings may start a program. The wall around it says the same.
_PLAIN_END = (
    "core.hooksPath=/dev/null", "core.alternateRefsCommand=true", "receive.autogc=false", "gc.auto=0",
    "receive.denyCurrentBranch=refuse", "maintenance.auto=false",
)  # fmt: skip
# What no waiting mends. Anything else that fails may be a network or a server that is away for a while.
_LASTING = re.compile(
    r"permission denied|authentication failed|could not read (?:username|password)|not found|access denied|forbidden"
    r"|does not appear to be a git repository|host key verification failed|does not support|certificate"
    r"|error: 40\d|unable to find remote helper|too large|dubious ownership",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"^!\t[^\t]*:([^\t]*)\t\[remote rejected\] \((.*)\)$", re.MULTILINE)
_SAID = re.compile(r"^remote: (?!error: hook declined)(.*\S)|^error: remote unpack failed: (.*)", re.MULTILINE)
_UNSTORED = "unpacker error"
_LOCKED = re.compile(r"Unable to create '([^']+\.lock)': File exists")
_RACED = re.compile(r"lock ref|failed to (?:update|lock)|atomic|incorrect old value", re.IGNORECASE)


class RemoteAway(GitTrouble):
    """The remote gave no answer. Whether a push took effect is not known."""


class RemoteLocked(RemoteAway):
    """A git at the remote holds a lock, or has left it behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A remote, and how it is reached. `moves` are names with the object that each must stand for there, empty for a
    name that must not exist, and the object that it is to stand for, empty for a name that is to be deleted."""

    url: str
    protocol: str
    environment: Mapping[str, str]
    runnable: tuple[str, ...] = ()  # For a folder: all that git may run.
    patience_seconds: float = 600.0  # A remote that gives no answer is tried again for so long.
    locked_seconds: float = 60.0  # No git holds a lock for so long: the one that took it has crashed.
    seconds_max: float = 300.0  # For one call.

    def at_once(self, seconds: float) -> Remote:
        """The same, for a caller that cannot wait."""
        return replace(self, patience_seconds=0.0, seconds_max=seconds)

    async def look(self, git: Git, *names: str) -> dict[str, str]:
        """What these names stand for there. A name that ends with * is the beginning of many."""
        words = ("ls-remote", "--refs", self._other_end(git, "upload-pack"), "--", self.url, *names)
        listed = await self._patiently(git, lambda: self._run(git, *words))
        found = {match[2]: match[1] for match in map(_LINE.fullmatch, listed.text.splitlines()) if match}
        whole = {each for each in names if each[-1] != "*"}
        begun = tuple(each[:-1] for each in names if each[-1] == "*")
        return {name: at for name, at in found.items() if name in whole or (begun and name.startswith(begun))}

    async def fetch(self, git: Git, names: Sequence[str]) -> None:
        """Bring the objects that these names stand for; nothing, if one is gone meanwhile. No name moves here."""
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules",
                 "--no-auto-maintenance", self._other_end(git, "upload-pack"), "--", self.url, *names)  # fmt: skip
        await self._patiently(git, lambda: self._run(git, *words, may_lack=True))

    async def push(self, git: Git, moves: Sequence[tuple[str, str, str]]) -> bool:
        """Move names there in one step. False: one of them stands for something else. If a push is not answered, what
        the names stand for decides. A server that is killed may have moved some of them and not the others."""
        return await self._patiently(git, lambda: self._push(git, moves))

    async def _push(self, git: Git, moves: Sequence[tuple[str, str, str]]) -> bool:
        leases = (f"--force-with-lease={name}:{old}" for name, old, _ in moves)
        words = ("push", "--porcelain", "--atomic", "--no-verify", "--no-signed", "--no-follow-tags", "--no-thin",
                 "--recurse-submodules=no", *leases, self._other_end(git, "receive-pack"), "--", self.url,
                 *(f"{new}:{name}" for name, _, new in moves))  # fmt: skip
        failed: GitTrouble
        try:
            answer = await self._run(git, *words, may_fail=True)
            if answer.code == 0:
                return True
            failed = self._failed(answer)
        except RemoteAway as away:
            failed = away
        there = await self.look(git, *(name for name, _, _ in moves))
        if all(there.get(name, "") == new for name, _, new in moves):
            return True
        if all(there.get(name, "") == old for name, old, _ in moves):
            raise failed
        return False

    async def _patiently(self, git: Git, ask_once: Callable[[], Awaitable[T]]) -> T:
        clock, pause = asyncio.get_running_loop().time, _PAUSE_SECONDS
        until, locked, told = clock() + self.patience_seconds, 0.0, False
        try:
            while True:
                try:
                    return await ask_once()
                except RemoteAway as away:
                    there_is_a_lock = isinstance(away, RemoteLocked)
                    locked = (locked or clock() + self.locked_seconds) if there_is_a_lock else 0.0
                    if clock() + pause > min(until, locked or until):
                        raise
                    _LOG.warning("remote-away why=%s", away)
                    told = True
                    git.tell(f"Waiting: {away}")
                await asyncio.sleep(pause)
                pause = min(pause * 2, _PAUSE_SECONDS_MAX)
        finally:
            if told:
                git.tell("")

    def _other_end(self, git: Git, program: str) -> str:
        """The option that names the program at the other end."""
        if self.protocol != "file":
            return f"--{program}=git-{program}"
        plain = [word for each in (*_PLAIN_END, f"safe.directory={self.url}") for word in ("-c", each)]
        return f"--{program}={shlex.join([git.program, *plain, program])}"

    async def _run(self, git: Git, *words: str, may_fail: bool = False, may_lack: bool = False) -> GitOutput:
        """Ask git once. RemoteAway: there is no answer."""
        writable = [git.private, git.directory / "objects"]
        behind = NO_WALLS
        if self.protocol == "file":
            behind = replace(git.behind or walls(), calls=b"")
            refuse_strangers(*_parts(Path(self.url)))
            writable.append(Path(self.url))
        call = GitCall(
            argv=(git.program, *words), folder=git.private / private_repository.EMPTY, writable=writable,
            environment={**self.environment, "GIT_DIR": str(git.private)}, runnable=self.runnable,
            output_bytes_max=_OUTPUT_BYTES_MAX,
        )  # fmt: skip
        try:
            code, out, errors = await ask(call, seconds=self.seconds_max, behind=behind)
        except TimeoutError:
            raise RemoteAway(f"{self.url} did not answer within {self.seconds_max:.0f} seconds.") from None
        except OSError as trouble:
            raise GitTrouble(f"git {words[0]} could not be started: {trouble.strerror}.") from None
        if max(len(out), len(errors)) > _OUTPUT_BYTES_MAX:
            raise GitTrouble(f"{self.url} has more to say than {_OUTPUT_BYTES_MAX:,} bytes; name another remote.")
        answer = GitOutput(code=code, text=out.decode(errors="replace"), errors=errors.decode(errors="replace"))
        if code and not may_fail and not (may_lack and "couldn't find remote ref" in answer.errors):
            raise self._failed(answer)
        return answer

    def _failed(self, answer: GitOutput) -> GitTrouble:
        """What git's words say, as an error."""
        if reasons := [(name, why) for name, why in _REFUSED.findall(answer.text) if not _RACED.search(why)]:
            why = reasons[0][1]
            names = " and ".join(name for name, also in reasons if also == why)
            return self._refused(names, why, " ".join(map("".join, _SAID.findall(answer.errors))))
        if lock := _LOCKED.search(answer.errors):
            return RemoteLocked(
                f"{self.url} is locked by a git that runs there or has crashed. If none runs there, remove this file: "
                f"{os.path.normpath(clean(lock[1]))}"
            )
        lines = [each for each in answer.errors.splitlines() if each.strip()]
        lasting = [each for each in lines if _LASTING.search(each)]  # What ssh says about a changed key is long.
        said = one_line(clean(" ".join(lasting or lines)), 400) or f"code {answer.code}"
        if lasting:
            return GitTrouble(f"{self.url} cannot be used as the remote: {said}")
        return RemoteAway(f"{self.url} cannot be reached: {said}")

    def _refused(self, names: str, why: str, said: str) -> GitTrouble:
        said = one_line(clean(said), 300).rstrip(".")
        if why == _UNSTORED:
            return GitTrouble(
                f"{self.url} refuses a push: it could not store the work: {said or why}. Look at its disk, its rights "
                "and its limits, or name another remote."
            )
        return GitTrouble(
            f"{self.url} refuses a push to {one_line(clean(names), 200)}: {one_line(clean(why), 200)}"
            f"{': ' if said else ''}{said}. The team pushes to the branch that finished work goes to, to "
            "refs/heads/dugnad/ and to refs/dugnad/: allow that there, or name another remote."
        )


async def open_remote(named: str, git: Git, environment: Mapping[str, str]) -> Remote:
    """The remote that a user named: a folder, or an address of ssh or https. GitTrouble: it cannot be one."""
    protocol = _protocol(named)
    path = environment.get("PATH", os.defpath)
    if protocol == "file":
        where = _folder(named, git)
        others = os.path.join((await git.run("--exec-path")).text.strip(), "git")  # Which git starts for its parts.
        own = {**ENVIRONMENT, "GIT_ALLOW_PROTOCOL": "file"}
        return Remote(url=str(where), protocol=protocol, environment=own, runnable=(_SHELL, others))
    own = {name: value for name, value in environment.items() if not name.startswith("GIT_")}
    own |= {**ENVIRONMENT, "HOME": environment.get("HOME", "/dev/null/none"), "GIT_ALLOW_PROTOCOL": protocol}
    own["PATH"] = os.pathsep.join(each for each in path.split(os.pathsep) if _is_outside(each, git.top)) or os.defpath
    settings = await _settings(git, environment)
    own |= {name: environment[name] for name in _PASSED if name in environment}
    if protocol == "ssh" and "GIT_SSH_COMMAND" not in own:
        if (program := environment.get("GIT_SSH") or find_program("ssh", path, outside=git.top)) is None:
            raise GitTrouble(f"{named} is reached with ssh, which is not installed: `apt install openssh-client`.")
        ours = f"{shlex.quote(program)} -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15"
        own["GIT_SSH_COMMAND"] = dict(settings).get("core.sshcommand") or ours
    own["GIT_CONFIG_COUNT"] = str(len(settings))
    for place, (name, value) in enumerate(settings):
        own |= {f"GIT_CONFIG_KEY_{place}": name, f"GIT_CONFIG_VALUE_{place}": value}
    return Remote(url=named, protocol=protocol, environment=own)


def _is_outside(folder: str, top: Path) -> bool:
    return os.path.isabs(folder) and not Path(os.path.realpath(folder)).is_relative_to(top)


def _protocol(named: str) -> str:
    """How a remote of this name is reached. GitTrouble: not at all."""
    says = f"{one_line(clean(named), 200)!r} cannot be the remote: "
    if not named or not all(map(shows, named)) or named.startswith("-") or _HELPER.match(named):
        raise GitTrouble(f"{says}name a bare repository's folder, or an address such as git@host:path.")
    if "://" not in named:
        return "ssh" if _SCP.fullmatch(named) else "file"
    try:
        parts = urlsplit(named)
        scheme, host, secret = parts.scheme, parts.hostname or "", parts.password
    except ValueError:
        scheme, host, secret = "", "", None
    if secret is not None:
        raise GitTrouble("The remote's address holds a password; keep it in git's credential helper instead.")
    if not host or scheme not in ("ssh", "https", "http") or (scheme == "http" and host not in _LOCAL):
        raise GitTrouble(f"{says}only folders, ssh and https are used.")
    return scheme


def _parts(where: Path) -> tuple[Path, ...]:
    return (where, *(where / each for each in ("HEAD", "config", "objects", "refs", "packed-refs", "hooks")))


def _folder(named: str, git: Git) -> Path:
    """GitTrouble: the folder is no bare repository, is another user's, or is part of the project."""
    where = Path(named).expanduser().resolve()
    if (where / ".git").exists() or where.name == ".git":
        raise GitTrouble(f"{where} has a checkout; `git clone --bare {pasted(str(where))} NAME.git` makes a bare one.")
    if not ((where / "objects").is_dir() and (where / "refs").is_dir() and (where / "HEAD").is_file()):
        raise GitTrouble(f"{where} is not a bare repository; `git init --bare {pasted(str(where))}` makes one.")
    if where.is_relative_to(git.top) or git.directory.is_relative_to(where):
        raise GitTrouble(f"{where} is in the project itself; put the remote elsewhere.")
    refuse_strangers(*_parts(where))
    return where


async def _settings(git: Git, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """What the user's own files say about credentials and connections."""
    passed = {name: environment[name] for name in ("HOME", "XDG_CONFIG_HOME") if name in environment}
    own = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("GIT_CONFIG")} | passed
    call = GitCall(argv=(git.program, "config", "--includes", "--list", "-z"), environment=own, folder=Path("/"))
    try:
        code, out, _ = await ask(call, seconds=60.0, behind=git.behind)
    except (OSError, TimeoutError):
        code, out = 1, b""
    listed = out.decode(errors="surrogateescape").split("\0") if code == 0 else []
    pairs = ((name, value) for name, mark, value in (each.partition("\n") for each in listed) if mark)
    return [(name, value) for name, value in pairs if name.startswith(_TAKEN)]
