"""External agents in the user's own file, `[commands.NAME]` and `[acp.NAME]`: what teammates use instead of a model.

A project can only choose among them by name, because they get keys and run programs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from ..agent.external.command import ACP_PREFIX, ACP_PRESETS, PREFIX, PRESETS, AcpCommand, ExternalCommand, Reads
from ..errors import BadInput, ModelMisconfigured
from ..logs import hide
from ..workspace.programs import find_program
from ..workspace.sandbox.profile import SYSTEM
from .kinds import Hosts, Line, Services, Variable, words
from .reader import FileLocation, Key, Pattern, nearest, read, said

command_name = Pattern("[a-z][a-z0-9_-]{0,39}", ": {} must be a short name of small letters, such as claude.")
_FOLDER = Pattern("~?/+[^/\0][^\0]*", " must name folders such as ~/.local/share/claude, not {}.")
_SECRET = re.compile(r"key|secret|token|passw|credential|auth", re.IGNORECASE)
_FROM = re.compile(r"env(\??):([A-Za-z_][A-Za-z0-9_]*)")  # With a question mark: only if it is set.
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def _passed(place: FileLocation, value: Any) -> str:
    """The value of a variable, or where it comes from. No message shows it: it may be the key itself."""
    name = place.path[-1]
    if not isinstance(value, str) or (_SECRET.search(name) and not _FROM.fullmatch(value)):
        raise BadInput(f'{place} must name the variable it comes from, as "env:{name}"; no file holds keys.')
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class _AgentTable:
    """What both kinds of table have; `ExternalCommand` explains each key."""

    run: Annotated[tuple[str, ...] | None, partial(words, '"claude", "-p"')] = None
    environment: Mapping[Variable, Annotated[str, _passed]] | None = None
    hosts: Hosts | None = None
    services: Services | None = None
    readable: tuple[Annotated[str, _FOLDER], ...] | None = None
    seconds: float | None = None
    dollars_per_run: float | None = None
    tokens_per_run: int | None = None
    dollars_per_minute: float | None = None
    tokens_per_minute: int | None = None
    runs_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CommandTable(_AgentTable):
    """[commands.NAME]: an agent as the user describes it."""

    reads: Reads | None = None
    dollars_option: Line | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _AcpTable(_AgentTable):
    """[acp.NAME]: the same for an agent that speaks the Agent Client Protocol; `AcpCommand` explains each key."""

    counts_dollars: Annotated[bool | None, Key("reports_dollars")] = None
    counts_tokens: Annotated[bool | None, Key("reports_tokens")] = None
    version: Line | None = None
    login: Line | None = None
    options: Mapping[Line, Line] | None = None
    start_seconds: Annotated[float, (None, 3_600)] | None = None
    silence_seconds: float | None = None


def read_command(place: FileLocation, value: Any) -> ExternalCommand:
    """The command with its variables filled in."""
    found = _filled_in(read(_CommandTable, place, value), PRESETS, place)
    return ExternalCommand(name=f"{PREFIX}{place.path[-1]}", **found)


def read_acp(place: FileLocation, value: Any) -> AcpCommand:
    """The same for an agent that speaks the Agent Client Protocol."""
    found = _filled_in(read(_AcpTable, place, value), ACP_PRESETS, place)
    return AcpCommand(name=f"{ACP_PREFIX}{place.path[-1]}", **found)


def _filled_in(table: _AgentTable, presets: Mapping[str, Mapping[str, Any]], place: FileLocation) -> dict[str, Any]:
    name, environment = place.path[-1], place.environment
    preset = presets.get(name, {})
    found = {**preset, **said(table)}
    if "run" not in found:
        raise BadInput(f"{place.file}: {place.table} does not say what to run; only {', '.join(presets)} need not.")
    own = {**preset.get("environment", {}), **(table.environment or {})}
    filled = {variable: _filled(value, environment) for variable, value in own.items()}
    home = environment.get("HOME", "/")
    found["readable"] = tuple(Path(each.replace("~", home, 1)) for each in table.readable or ())
    path: dict[str, str] = {}
    if not found["readable"]:
        found["run"], found["readable"], path = _installed(found["run"], environment)
    passed = {variable: value for variable, value in filled.items() if value is not None}
    found["environment"] = MappingProxyType({**path, **passed})
    found["missing"] = tuple(own[variable] for variable, value in passed.items() if own[variable] and not value)
    return found


def _filled(value: str, environment: Mapping[str, str]) -> str | None:
    """The value, or that of the variable it names. None: the variable is optional and not set."""
    if (found := _FROM.fullmatch(value)) is None:
        return value
    given = environment.get(found[2], "")
    hide({found[2]: given})
    return given or (None if found[1] else "")


def _installed(
    run: tuple[str, ...], environment: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[Path, ...], dict[str, str]]:
    """The words to run, what the sandbox must show for them, and where to look for programs.

    The sandbox shows a program outside the system's folders by itself, and one of npm with the packages beside it.
    """
    path = "" if "/" in run[0] else environment.get("PATH", os.defpath)
    found = find_program(run[0], path, outside=project_here(environment))
    if found is None:
        return run, (), {}
    real = Path(found).resolve()
    if all(str(each).startswith(tuple(f"{folder}/" for folder in SYSTEM)) for each in (found, real)):
        return run, (), {}
    if "node_modules" in real.parts:
        packages = Path(*real.parts[: real.parts.index("node_modules") + 1])
        programs = packages.parent.parent / "bin"
        searched = {"PATH": f"{programs}:{_SYSTEM_PATH}"}
        return (str(real), *run[1:]), (packages, *([programs] if programs.is_dir() else [])), searched
    return (str(Path(found)), *run[1:]), (Path(found),), {}


def project_here(environment: Mapping[str, str]) -> Path:
    """The outermost project or repository around the working folder. The home folder, with the user's own programs, is
    none."""
    here, home = (Path(os.path.realpath(each)) for each in (".", environment.get("HOME") or "/"))
    folders = [each for each in (here, *here.parents) if not home.is_relative_to(each)]
    marked = [each for each in folders if os.path.lexists(each / "dugnad.toml") or os.path.lexists(each / ".git")]
    return [here / ".dugnad", *folders[:1], *marked][-1]


def open_command(
    name: str, commands: Mapping[str, ExternalCommand], agents: Mapping[str, AcpCommand]
) -> ExternalCommand:
    """The external agent of that name, as the user set it up."""
    kind, _, word = name.partition(":")
    known: Mapping[str, ExternalCommand] = agents if kind == "acp" else commands
    table, presets = ("acp", ACP_PRESETS) if kind == "acp" else ("commands", PRESETS)
    if (found := known.get(word)) is None:
        hint = nearest(word, known) if known else f"add the table, and it may be empty for {' and '.join(presets)}."
        raise ModelMisconfigured(f"{name}: your config.toml has no [{table}.{word}]; {hint}")
    if found.missing:
        variable = found.missing[0].partition(":")[2]
        raise ModelMisconfigured(f"{name} is to be given {variable}, which is not set.")
    return found
