"""Runs a teammate's commands in a sandbox, or not at all.

`probe` tries out what this machine can do. A `Sandbox` then starts commands through one small helper process
(`helper/`), confined as `profile.py` says. If the sandbox cannot be made, the command fails with a ToolError; there is
no second way to run it. Commands run without a sandbox ("bare") only if a person asked for that by name.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import os
import platform
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import BadInput, ToolError
from .destinations import PROXY_PORT, TOOLS_PORT, parse_hosts
from .helper.client import StarterProcess
from .limits import bounded
from .pipes import PipedCommand, open_pipes
from .probe import NONE_SAYS, STRICT_SAYS, Level, Probe, find_bwrap, find_hole, how_to_install, how_to_mend
from .profile import SYSTEM, CommandLimits, Confinement, Machine, Profile, environment_for, strict
from .protected_paths import protect, sockets_in
from .proxy import Network, Proxy
from .services import LOOPBACK, Service, listened_at, parse_services

__all__ = ["CommandResult", "Level", "PipedCommand", "Probe", "Sandbox", "find_bwrap", "how_to_install", "probe"]

_COMMAND_BYTES_MAX = 128 * 1024 - 1  # The kernel's bound on one argument.
_STDIN_BYTES_MAX = 4 * 1024 * 1024
GRACE_SECONDS = 4.0  # For a command that was asked to end.
_TIMED_OUT = 124  # The code that timeout(1) made known.
_NOT_TREES = ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var")
# From here on the count of processes is that of the namespace. Some shells know it by one letter, some by the other.
_SHELL = 'ulimit -u "$1" 2>/dev/null || ulimit -p "$1" 2>/dev/null || exit 126; exec "$0" -c "$2"'
_BEGUN = "printf '\\0' >&2; "  # Told before a long-running command begins: from here on it is the command that speaks.


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended, and what it printed: standard output and errors in the order they came."""

    code: int
    output: bytes
    timed_out: bool
    shortened: bool
    seconds: float
    refused: tuple[str, ...] = ()  # Of the network: sentences that say what and why.


async def probe(path: str, *, outside: Path, beside: Path = Path(sys.executable), bwrap: Path | None = None) -> Probe:
    """Find out what this machine can do, by attempts and not by versions. `path` is where programs are looked for,
    and never in the project at `outside`."""
    install = how_to_install(path)
    if not sys.platform.startswith("linux"):
        return Probe(level="none", says=f"The sandbox is made for Linux. {NONE_SAYS}", mend=install)
    bwrap = bwrap or find_bwrap(path, outside=outside, beside=beside)
    why, mend = "bubblewrap is not installed", install
    if bwrap is not None:
        wanted = Probe(level="strict", says=STRICT_SAYS, bwrap=bwrap)
        why = await _fails(wanted)
        if not why:
            return wanted
        mend = how_to_mend(why, install)
    return Probe(level="none", says=f"{why}. {NONE_SAYS}", mend=mend)


async def _fails(wanted: Probe) -> str:
    """Why the sandbox does not hold here, without the full stop; empty: it holds."""
    sandbox = Sandbox(wanted)
    try:
        hole = await find_hole(sandbox.run)
    except ToolError as trouble:
        return str(trouble).rstrip(".")
    finally:
        await sandbox.close()
    return f"The sandbox does not hold here: {hole}" if hole else ""


class Sandbox:
    """Where commands run. Start it, or let the first command do so; close it when there are no more."""

    def __init__(
        self, found: Probe, *, unsafe: bool = False, readable: tuple[Path, ...] = (),
        limits: CommandLimits | None = None, user: int | None = None,
        profile: Callable[[Confinement, Machine], Profile] = strict, network: Network | None = None,
    ) -> None:  # fmt: skip
        """`readable` are toolchains outside /usr. `unsafe`: a person typed that commands may run bare where there is no
        sandbox. `user`: where dugnad runs as root, the ordinary user that commands run as; trees must be that user's.
        `network`: how commands reach the hosts that they are given, and who hears of it.
        """
        self.profile = profile
        self.found = found
        self.bare = found.level == "none" and unsafe
        self.readable = readable
        self.limits = limits or CommandLimits()
        self.user = user
        self.network = network or Network()
        self._starter = StarterProcess()
        self._enough: asyncio.Event | None = None
        self._scratch: Path | None = None
        self._services: tuple[Service, ...] = ()
        self._addresses: dict[str, str] = {}  # Of services by name, for as long as this process runs.
        self._server: Callable[[socket.socket], None] | None = None

    def until(self, enough: asyncio.Event) -> Sandbox:
        """This sandbox, but what it runs is asked to end (SIGTERM) once there is enough, and killed after a grace."""
        same = copy.copy(self)
        same._enough = enough
        return same

    def sharing(self, scratch: Path) -> Sandbox:
        """This sandbox, but its commands share a folder as /tmp, which they and nobody else may write."""
        same = copy.copy(self)
        same._scratch = scratch
        return same

    def using(self, services: Sequence[str]) -> Sandbox:
        """This sandbox, but its commands can use these servers of the user's own, such as localhost:4000."""
        same = copy.copy(self)
        same._services = parse_services(services)
        return same

    def serving(self, server: Callable[[socket.socket], None]) -> Sandbox:
        """This sandbox, but the server is handed a socket that listens on the loopback of what is opened, at
        TOOLS_PORT; where there is no sandbox, on that of this machine at a free port."""
        same = copy.copy(self)
        same._server = server
        return same

    def keeps_tmp(self, tree: Path, readable: tuple[Path, ...]) -> bool:
        """Whether commands in this tree really share it."""
        wanted = Confinement(tree=tree, readable=(*self.readable, *readable), scratch=self._scratch)
        return wanted.shared_scratch is not None

    async def start(self) -> None:
        """Start the helper, if it does not run. ToolError: there is no sandbox, and nobody said to do without."""
        if self.found.level == "none" and not self.bare:
            mend = f" Run: {self.found.mend}" if self.found.mend else ""
            raise ToolError(f"{self.found.says}{mend}")
        await self._starter.start()

    async def close(self) -> None:
        """End what still runs, and the helper. It may be started again."""
        await self._starter.close()

    async def run(
        self, command: str, *, tree: Path, seconds: float, output_bytes_max: int,
        environment: Mapping[str, str] | None = None, hosts: tuple[str, ...] = (), readable: tuple[Path, ...] = (),
        on_output: Callable[[bytes], None] | None = None, stdin: bytes = b"",
    ) -> CommandResult:  # fmt: skip
        """Run a command of the shell in a tree, and wait until nothing of it is left.

        Its end, whatever it is, is a `CommandResult`; ToolError means that it was not run. `hosts` are those it can
        reach, as names, `*.` and a name, with a port if it is not 443. `on_output` gets what it prints as it comes, up
        to a bound. `stdin` is what it can read.
        """
        if len(stdin) > _STDIN_BYTES_MAX:
            raise BadInput("There are more than 4 MiB for the command to read; put them into a file of the tree.")
        request, proxy = await self._prepared(command, tree, environment, hosts, readable)
        request |= {"seconds": seconds, "output_bytes_max": output_bytes_max}
        request["streamed_bytes_max"] = self.limits.streamed_bytes_max if on_output else 0
        try:
            answer = await self._starter.ask(
                request, files=_as_files(stdin), on_output=on_output, on_socket=proxy.serve, enough=self._enough,
                grace_seconds=GRACE_SECONDS,
            )  # fmt: skip
        finally:
            proxy.stop()
        if trouble := answer.get("trouble"):
            raise ToolError(f"The sandbox could not be made: {trouble}.")
        output = base64.b64decode(answer["output"])
        code = _TIMED_OUT if answer["timed_out"] else answer["code"]
        if code is None:  # Bubblewrap ended, and the command in it did not.
            raise _not_made(output.decode(errors="replace"))
        return CommandResult(
            code=code, output=output, timed_out=answer["timed_out"], shortened=answer["shortened"],
            seconds=answer["seconds"], refused=tuple(proxy.refused),
        )  # fmt: skip

    async def open(
        self, command: str, *, tree: Path, environment: Mapping[str, str] | None = None, hosts: tuple[str, ...] = (),
        readable: tuple[Path, ...] = (),
    ) -> PipedCommand:  # fmt: skip
        """Start a command that runs until it is closed, with pipes to talk to it. ToolError: it did not start.

        It has the bounds of any other command, except for the time. It ends with this sandbox or this process at the
        latest.
        """
        request, proxy = await self._prepared(command, tree, environment, hosts, readable, begun=_BEGUN)
        request |= {"seconds": None, "output_bytes_max": 0, "streamed_bytes_max": 0}
        pipes, theirs = await open_pipes()
        try:
            number, answer = await self._starter.begin(request, files=theirs, on_socket=self._taking(proxy))
        except BaseException:
            pipes.close()
            raise
        answer.add_done_callback(lambda _: proxy.stop())
        piped = PipedCommand(pipes, answer, lambda: self._starter.end(number), proxy.refused)
        try:
            begun = await pipes.errors.begun
        except asyncio.CancelledError:
            await piped.close()
            raise
        if begun:
            return piped
        await piped.wait()
        await piped.close()
        raise _not_made(answer.result().get("trouble") or piped.errors())

    async def _prepared(
        self, command: str, tree: Path, environment: Mapping[str, str] | None, hosts: tuple[str, ...],
        readable: tuple[Path, ...], *, begun: str = "",
    ) -> tuple[dict[str, Any], Proxy]:  # fmt: skip
        """What the helper is asked, once everything was checked and the helper runs; and the command's way out."""
        policy = Confinement(
            tree=_checked_tree(tree), readable=(*self.readable, *readable), limits=self.limits,
            environment=_checked_environment(environment or {}), hosts=() if self.bare else hosts,
            scratch=self._scratch, services=() if self.bare else await self._found_services(),
        )  # fmt: skip
        if not self.bare:
            policy = replace(policy, covered=await self._sockets(policy))
        request = self._request(_checked_command(command), policy, begun)
        proxy = Proxy(parse_hosts(hosts), policy.tree, self.network, policy.services)
        await self.start()
        return request, proxy

    async def _found_services(self) -> tuple[Service, ...]:
        """The services, each where its name led when it was first asked for."""
        for service in self._services:
            if not service.addresses and service.name not in self._addresses:
                try:
                    addresses = await self.network.resolve(service.name, service.port)
                except (OSError, UnicodeError):
                    addresses = ()
                (address,) = service.resolved(addresses).addresses
                self._addresses.setdefault(service.name, address)  # Another command may have been first meanwhile.
        found = self._addresses
        return tuple(each if each.addresses else each.resolved([found[each.name]]) for each in self._services)

    def _taking(self, proxy: Proxy) -> Callable[[socket.socket], None]:
        """Who gets a socket that listens inside."""
        if self._server is not None and self.bare:
            self._server(socket.create_server(("127.0.0.1", 0)))

        def take(listener: socket.socket) -> None:
            own = self._server if listener.getsockname()[1] == TOOLS_PORT else None
            (own or proxy.serve)(listener)

        return take

    async def _sockets(self, policy: Confinement) -> tuple[Path, ...]:
        return await asyncio.to_thread(sockets_in, policy)

    def _request(self, command: str, policy: Confinement, begun: str) -> dict[str, Any]:
        shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
        policy, holds = protect(policy)
        ports = [PROXY_PORT] if policy.hosts or policy.services else []
        ports += [TOOLS_PORT] if self._server and not self.bare else []
        request: dict[str, Any] = {
            "bare": self.bare, "user": self.user, "limits": asdict(self.limits), "holds": () if self.bare else holds,
            "listens": [*listened_at(policy.services), *((LOOPBACK[0], port) for port in ports)],
        }  # fmt: skip
        try:
            if not self.bare:
                return request | self._in_bubblewrap(command, policy, shell, begun)
            words = [f'{begun}exec "$0" -c "$1"', shell, command] if begun else [command]
            return request | {
                "program": shell, "argv": [shell, "-c", *words], "tree": str(policy.tree),
                "environment": {**environment_for(policy), "HOME": policy.environment.get("HOME", str(policy.tree))},
            }  # fmt: skip
        except ValueError as error:
            raise ToolError(f"The sandbox could not be made: {error}") from None

    def _in_bubblewrap(self, command: str, policy: Confinement, shell: str, begun: str) -> dict[str, Any]:
        made = self.profile(policy, self._machine())
        processes = bounded(self.limits.processes_max, resource.RLIMIT_NPROC)
        return {
            "program": str(self.found.bwrap),
            "argv": ["bwrap", "--", shell, "-c", begun + _SHELL, shell, str(processes), command],
            "options": [word for each in made.arguments for word in each],
            "files": [(path, base64.b64encode(content).decode()) for path, content in made.files],
            "filter": base64.b64encode(made.filter).decode(),
        }

    def _machine(self) -> Machine:
        names = frozenset(name for name in os.listdir("/proc") if not name.isdigit())
        user, group = (os.getuid(), os.getgid()) if self.user is None else (self.user, self.user)
        links = {each: os.readlink(each) for each in SYSTEM if os.path.islink(each)}
        return Machine(architecture=platform.machine(), proc=names, links=links, user=user, group=group)


def _not_made(why: str) -> ToolError:
    said = why.strip() or "it ended without a word"
    return ToolError(f"The sandbox could not be made: {said.removeprefix('bwrap: ').rstrip('.')}.")


def _as_files(text: bytes) -> tuple[int, ...]:
    """What a command reads is a file in memory: nobody has to feed it, however slowly it reads."""
    if not text:
        return ()
    file = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with os.fdopen(file, "wb", closefd=False) as writer:
        writer.write(text)
    try:
        return (os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC),)  # To read only, and from the beginning.
    finally:
        os.close(file)


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
