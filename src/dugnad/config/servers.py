"""MCP servers in the user's own files: which there are (config.toml), and what of them was approved (approved.toml).

Both are the user's. A project can only choose among these servers: see `project.py`.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import BadInput
from ..tools.mcp.offer import Server, hash_of
from ..tools.mcp.transport import LOOPBACK
from .user import FileLocation, Kind, flag, number, read_text, shown, tables, text, texts, user_file, web_address

_APPROVED_BYTES_MAX = 8 * 1024 * 1024
_NAME = re.compile(r"[a-z][a-z0-9-]{0,23}")  # Part of its tools' names, which have 64 letters at most.
_REFERENCE = re.compile(r"([A-Za-z]+ )?env:[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?")
_FOR_COMMANDS = ("environment", "hosts", "readable", "tree")
_SECONDS_MAX = 600.0


def server_tables() -> Kind:
    """[mcp.NAME], as often as there are servers."""
    known: dict[str, Kind] = {
        "command": _command, "url": _address, "environment": _references(_VARIABLE), "headers": _references(_HEADER),
        "hosts": _hosts, "readable": _folders, "tree": flag, "roles": texts, "seconds": number(most=_SECONDS_MAX),
    }  # fmt: skip
    belong = 'a secret is in no file; name the variable that holds it: environment = { TOKEN = "env:TOKEN" }.'
    each = tables(_name, known, secrets_belong=belong)

    def read(place: FileLocation, given: Any) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = each(place, given)
        for name, entry in found.items():
            _fits_together(place.under(name), entry)
        return found

    return read


def servers_from(given: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]) -> tuple[Server, ...]:
    """With what the variables they name hold right now."""
    servers = []
    for name, entry in given.items():
        references = (*entry.get("environment", {}).values(), *entry.get("headers", {}).values())
        named = {each.partition("env:")[2] for each in references}
        secrets = {each: environment[each] for each in named if environment.get(each)}
        servers.append(Server(name=name, **entry, secrets=secrets))
    return tuple(servers)


def _fits_together(place: FileLocation, entry: Mapping[str, Any]) -> None:
    where = f"{place.file}: {place.table}"
    if ("command" in entry) == ("url" in entry):
        raise BadInput(f"{where} must have either a command or a url.")
    strange = (
        [key for key in _FOR_COMMANDS if key in entry] if "url" in entry else [k for k in ("headers",) if k in entry]
    )
    if strange:
        kind = "is reached by its url" if "url" in entry else "is a command"
        raise BadInput(f"{where} {kind}, so {strange[0]} means nothing there; remove it.")


def _name(place: FileLocation, value: str) -> str:
    if not _NAME.fullmatch(value):
        raise BadInput(f"{place}: {shown(value)} cannot name a server: small letters, digits and -, 24 at most.")
    return value


def _command(place: FileLocation, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise BadInput(f'{place} must be a list of words such as ["npx", "-y", "a-server"], not {shown(value)}.')
    return tuple(text(place, each) for each in value)


def _address(place: FileLocation, value: Any) -> str:
    instead = 'use headers = { Authorization = "Bearer env:TOKEN" }'
    parts = urlsplit(web_address(place, value, "https://mcp.example.org/mcp", instead))
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise BadInput(f"{place} must begin with https:// unless the server is on this machine.")
    return str(value)


def _references(names: re.Pattern[str]) -> Kind:
    def read(place: FileLocation, value: Any) -> dict[str, str]:
        if not isinstance(value, dict):
            raise BadInput(f'{place} must be a table such as {{ NAME = "env:NAME" }}, not {shown(value)}.')
        for name, reference in value.items():
            if not names.fullmatch(name):
                raise BadInput(f"{place}: {shown(name)} is no name for one.")
            # The value is not shown: it may well be the secret itself.
            if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
                raise BadInput(
                    f'{place.under(name)} must name a variable, as in "env:MY_TOKEN"; a secret is in no file.'
                )
        return dict(value)

    return read


def _hosts(place: FileLocation, value: Any) -> tuple[str, ...]:
    for each in texts(place, value):
        if not _HOST.fullmatch(each):
            raise BadInput(f"{place} must be names such as api.example.org, not {shown(each)}.")
    return texts(place, value)


def _folders(place: FileLocation, value: Any) -> tuple[str, ...]:
    for each in texts(place, value):
        if not each.startswith("/"):
            raise BadInput(f"{place} must be whole paths such as /opt/node, not {shown(each)}.")
    return texts(place, value)


# What was approved.


def approved_file(environment: Mapping[str, str]) -> Path | None:
    """Beside the user's own file."""
    path = user_file(environment)
    return None if path is None else path.with_name("approved.toml")


def read_approved(environment: Mapping[str, str]) -> dict[str, str]:
    """The approved text of each server. One that does not fit its hash was not written by us, and does not count."""
    path = approved_file(environment)
    if path is None or not os.path.lexists(path):
        return {}
    source = read_text(path, str(path), environment=environment, bytes_max=_APPROVED_BYTES_MAX)
    try:
        given = tomllib.loads(source)
    except (tomllib.TOMLDecodeError, RecursionError):
        raise BadInput(f"{path} is damaged; remove it, and approve your servers again.") from None
    found = {}
    for name, entry in given.items():
        said = entry.get("text") if isinstance(entry, dict) else None
        if isinstance(said, str) and hash_of(said) == entry.get("hash"):
            found[name] = said
    return found


def write_approved(environment: Mapping[str, str], name: str, said: str | None) -> Path:
    """Keep what was approved of a server; None: nothing is. All or nothing, also when two do so at once."""
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
    """Write it all or not at all."""
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
