"""Telling a client about this server: what to add to its configuration, without touching anything else in it. Pure,
but for the file that it reads and writes."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.servers import replace_file
from ..errors import BadInput
from ..safe_open import read_named

SERVER = "dugnad"
CLIENTS = ("claude", "codex", "opencode")
# Codex starts servers with few variables. It is told their names: the address of a board may hold a password.
_PASSED_ON = ("DUGNAD_BOARD", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
_SCHEMA = "https://opencode.ai/config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChange:
    """What a file says now, and what it would say."""

    file: Path
    adds: str  # For people.
    before: str | None  # None: there is no such file.
    after: str

    @property
    def is_there(self) -> bool:
        return self.before == self.after

    def write(self) -> None:
        """The whole new content or nothing, with the rights that the file has."""
        where = Path(os.path.realpath(self.file))
        try:
            where.parent.mkdir(parents=True, exist_ok=True)
            mode = where.stat().st_mode & 0o777 if where.exists() else 0o644
            replace_file(where, self.after)
            where.chmod(mode)
        except OSError as trouble:
            raise BadInput(f"{self.file} cannot be written: {trouble.strerror}.") from None


def change_for(
    client: str, *, command: Sequence[str], project: Path, environment: Mapping[str, str]
) -> ClientChange:  # fmt: skip
    """What makes a client start this server."""
    if client == "claude":
        entry: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
        return _in_json(project / ".mcp.json", ("mcpServers", SERVER), entry)
    if client == "opencode":
        entry = {"type": "local", "command": list(command), "enabled": True}
        return _in_json(project / "opencode.json", ("mcp", SERVER), entry, begins={"$schema": _SCHEMA})
    home = environment.get("CODEX_HOME") or f"{environment.get('HOME') or os.path.expanduser('~')}/.codex"
    return _in_toml(Path(home, "config.toml"), command)


def _read(file: Path) -> str | None:
    if not os.path.lexists(file):
        return None
    content, _ = read_named(file, str(file))
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadInput(f"{file} is not UTF-8 text, so it is left alone; save it as UTF-8.") from None


def _in_json(
    file: Path, place: tuple[str, str], entry: dict[str, Any], begins: Mapping[str, Any] | None = None
) -> ClientChange:  # fmt: skip
    before, (section, name) = _read(file), place
    adds = json.dumps({section: {name: entry}}, indent=2)
    try:
        found = json.loads(before, object_pairs_hook=_once) if before and before.strip() else dict(begins or {})
    except ValueError as wrong:
        raise BadInput(f"{file} is not plain JSON ({wrong}), so it is left alone; add this by hand:\n{adds}") from None
    inside = found.get(section, {}) if isinstance(found, dict) else None
    if not isinstance(inside, dict):
        raise BadInput(f"{file} has something else where servers belong, so it is left alone; add by hand:\n{adds}")
    if name in inside:
        return _known(file, inside[name] == entry, adds, before or "")
    after = {**found, section: {**inside, name: entry}}
    return ClientChange(
        file=file, adds=adds, before=before, after=json.dumps(after, indent=2, ensure_ascii=False) + "\n"
    )


def _in_toml(file: Path, command: Sequence[str]) -> ClientChange:
    before = _read(file)
    entry: dict[str, Any] = {"command": command[0], "args": list(command[1:]), "env_vars": list(_PASSED_ON)}
    adds = "\n".join([f"[mcp_servers.{SERVER}]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())])
    by_hand = f"so it is left alone; add this by hand:\n{adds}"
    try:
        found = tomllib.loads(before or "")
        servers = found.get("mcp_servers", {})
        if isinstance(servers, dict) and SERVER in servers:
            return _known(file, servers[SERVER] == entry, adds, before or "")
        after = f"{before.rstrip()}\n\n{adds}\n" if before and before.strip() else f"{adds}\n"
        # What was there must be there still, and nothing but this besides.
        if tomllib.loads(after) != {**found, "mcp_servers": {**servers, SERVER: entry}}:
            raise BadInput(f"{file} cannot be added to, {by_hand}")
    except (tomllib.TOMLDecodeError, TypeError) as wrong:
        raise BadInput(f"{file} is not a TOML file that can be added to ({wrong}), {by_hand}") from None
    return ClientChange(file=file, adds=adds, before=before, after=after)


def _known(file: Path, same: bool, adds: str, content: str) -> ClientChange:
    if not same:
        raise BadInput(
            f"{file} has a server {SERVER} with other settings, so it is left alone; remove it, or make it:\n{adds}"
        )
    return ClientChange(file=file, adds=adds, before=content, after=content)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is in it twice")
    return found
