"""MCP servers in the user's own files: which there are (config.toml), and what of them was approved (approved.toml).

Both are the user's. A project can only choose among these servers: see `project.py`.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from ..errors import BadInput
from ..logs import hide
from ..tools.mcp.offer import Server, hash_of
from ..tools.mcp.transport import LOOPBACK
from .kinds import Hosts, Services, Variable, address, words
from .reader import FileLocation, Pattern, read, read_text, said, user_file

_APPROVED_BYTES_MAX = 8 * 1024 * 1024
# It is part of its tools' names, which have at most 64 letters.
server_name = Pattern("[a-z][a-z0-9-]{0,23}", ": {} cannot name a server: small letters, digits and -, 24 at most.")
# No message shows the value: it may be the secret itself.
_REFERENCE = Pattern(
    "([A-Za-z]+ )?env:[A-Za-z_][A-Za-z0-9_]*", ' must name a variable, as in "env:MY_TOKEN"; a secret is in no file.'
)
_HEADER = Pattern("[A-Za-z][A-Za-z0-9-]*", ": {} is not the name of a header.")
_FOLDER = Pattern("/[^\0]*", " must be whole paths such as /opt/node, not {}.")
_FOR_COMMANDS = ("environment", "hosts", "services", "readable", "tree")
_ADDRESS = partial(address, "https://mcp.example.org/mcp", 'use headers = { Authorization = "Bearer env:TOKEN" }')


def _address(place: FileLocation, value: Any) -> str:
    parts = urlsplit(_ADDRESS(place, value))
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise BadInput(f"{place} must begin with https:// unless the server is on this machine.")
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerTable:
    """[mcp.NAME]: a server as the user describes it; `Server` explains each key."""

    command: Annotated[tuple[str, ...] | None, partial(words, '"npx", "-y", "a-server"')] = None
    url: Annotated[str | None, _address] = None
    environment: Mapping[Variable, Annotated[str, _REFERENCE]] | None = None
    headers: Mapping[Annotated[str, _HEADER], Annotated[str, _REFERENCE]] | None = None
    hosts: Hosts | None = None
    services: Services | None = None
    readable: tuple[Annotated[str, _FOLDER], ...] | None = None
    tree: bool | None = None
    roles: tuple[str, ...] | None = None
    seconds: Annotated[float, (None, 600)] | None = None

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise BadInput("must have either a command or a url.")
        means_nothing = _FOR_COMMANDS if self.command is None else ("headers",)
        if strange := [each for each in means_nothing if each in said(self)]:
            how = "is reached by its url" if self.command is None else "is a command"
            raise BadInput(f"{how}, so {strange[0]} means nothing there; remove it.")


def read_server(place: FileLocation, value: Any) -> Server:
    """The server, with the current values of the variables that it names."""
    table = read(_ServerTable, place, value)
    references = (*(table.environment or {}).values(), *(table.headers or {}).values())
    named = {each.partition("env:")[2] for each in references}
    secrets = {each: place.environment[each] for each in named if place.environment.get(each)}
    hide(secrets)
    return Server(name=place.path[-1], **said(table), secrets=secrets)


def approved_file(environment: Mapping[str, str]) -> Path | None:
    """Beside the user's own file."""
    path = user_file(environment)
    return None if path is None else path.with_name("approved.toml")


def read_approved(environment: Mapping[str, str]) -> dict[str, str]:
    """The approved text of each server. A text that does not match its hash was changed by hand and does not count."""
    path = approved_file(environment)
    if path is None or not os.path.lexists(path):
        return {}
    place = FileLocation(file=str(path), environment=environment)
    source = read_text(path, place.file, place, bytes_max=_APPROVED_BYTES_MAX)
    try:
        given = tomllib.loads(source)
    except (ValueError, RecursionError):
        raise BadInput(f"{path} is damaged; remove it, and approve your servers again.") from None
    found = {}
    for name, entry in given.items():
        said = entry.get("text") if isinstance(entry, dict) else None
        if isinstance(said, str) and hash_of(said) == entry.get("hash"):
            found[name] = said
    return found


def write_approved(environment: Mapping[str, str], name: str, said: str | None) -> Path:
    """Keep the approved text of a server; None: it is not approved any more. Two processes may do so at once."""
    path = approved_file(environment)
    if path is None:
        raise BadInput("There is no home folder to keep it in; set HOME.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            kept = {**read_approved(environment), name: said}
            lines = ["# MCP servers as they were approved; `dugnad servers` compares.\n"]
            for each, approved in sorted(kept.items()):
                if approved is not None:
                    lines.append(f"\n[{each}]\nhash = \"{hash_of(approved)}\"\ntext = '''\n{approved}'''\n")
            replace_file(path, "".join(lines))
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as trouble:
        raise BadInput(f"{path} cannot be written: {trouble.strerror}.") from None
    return path


def replace_file(path: Path, content: str) -> None:
    """Write the whole content or nothing."""
    number, made = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise
