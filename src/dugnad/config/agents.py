"""Reading `[commands.NAME]` of the user's own file: other people's agents that may stand in for a model.

A project chooses among them by name and says nothing else of them: they are given keys, and run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..agent.external.command import PREFIX, PRESETS, READS, ExternalCommand
from ..errors import BadInput, ModelMisconfigured
from ..workspace.programs import find_program
from ..workspace.sandbox.destinations import parse_hosts
from ..workspace.sandbox.profile import SYSTEM
from .user import FileLocation, Kind, line, nearest, number, shown, tables, text, texts, whole

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(r"key|secret|token|passw|credential|auth", re.IGNORECASE)
_FROM = re.compile(r"env(\??):([A-Za-z_][A-Za-z0-9_]*)")  # With a question mark: passed on if it is set.
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def commands_kind(secrets_belong: str) -> Kind:
    """What `[commands.NAME]` may hold."""
    known: dict[str, Kind] = {
        "run": _words, "reads": _reads, "environment": _environment, "hosts": _hosts, "readable": _folders,
        "dollars_option": line, "seconds": number(), "dollars_per_run": number(), "tokens_per_run": whole(),
        "dollars_per_minute": number(), "tokens_per_minute": whole(),
        "runs_max": whole(),
    }  # fmt: skip
    return tables(_name, known, secrets_belong=secrets_belong)


def _name(place: FileLocation, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput(f"{place}: {shown(name)} must be a short name of small letters, such as claude.")
    return name


def _words(place: FileLocation, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
        raise BadInput(f'{place} must be a list of words such as ["claude", "-p"], not {shown(value)}.')
    return tuple(text(place, each) for each in value)


def _reads(place: FileLocation, value: Any) -> str:
    if value not in READS:
        raise BadInput(f"{place} must be one of {', '.join(READS)}, not {shown(value)}.")
    return str(value)


def _environment(place: FileLocation, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise BadInput(f"{place} must be a table of variables, not {shown(value)}.")
    for name, given in value.items():
        if not _VARIABLE.fullmatch(name):
            raise BadInput(f"{place}: {shown(name)} is not the name of a variable.")
        # What it is is not shown: it may well be the key itself.
        if not isinstance(given, str) or (_SECRET.search(name) and not _FROM.fullmatch(given)):
            raise BadInput(
                f'{place}: {name} must name the variable it comes from, as "env:{name}"; no file holds keys.'
            )
    return dict(value)


def _hosts(place: FileLocation, value: Any) -> tuple[str, ...]:
    try:
        parse_hosts(texts(place, value))
    except BadInput as wrong:
        raise BadInput(f"{place}: {wrong}") from None
    return texts(place, value)


def _folders(place: FileLocation, value: Any) -> tuple[str, ...]:
    for each in texts(place, value):
        if not each.startswith(("/", "~/")) or each.rstrip("/") in ("", "~"):
            raise BadInput(f"{place} must name folders such as ~/.local/share/claude, not {shown(each)}.")
    return texts(place, value)


def read_commands(
    label: str, given: Mapping[str, Any], environment: Mapping[str, str]
) -> Mapping[str, ExternalCommand]:
    """Each as it is to be run, with the variables it is given filled in."""
    return MappingProxyType({name: _command(label, name, entry, environment) for name, entry in given.items()})


def _command(label: str, name: str, entry: Mapping[str, Any], environment: Mapping[str, str]) -> ExternalCommand:
    said = {**PRESETS.get(name, {}), **entry}
    if "run" not in said:
        raise BadInput(f"{label}: [commands.{name}] does not say what to run; only {', '.join(PRESETS)} need not.")
    own = {**PRESETS.get(name, {}).get("environment", {}), **entry.get("environment", {})}
    passed = {variable: value for variable, value in own.items() if not (_unset(value, environment))}
    home = environment.get("HOME", "/")
    said["readable"] = tuple(Path(each.replace("~", home, 1)) for each in entry.get("readable", ()))
    if not said["readable"]:
        said["run"], said["readable"], path = _installed(said["run"], environment)
        passed = {**path, **passed}
    return ExternalCommand(
        name=f"{PREFIX}{name}",
        **{key: value for key, value in said.items() if key != "environment"},
        environment=MappingProxyType({variable: _filled(value, environment) for variable, value in passed.items()}),
        missing=tuple(value for value in passed.values() if _filled(value, environment) == "" and value),
    )


def _unset(value: str, environment: Mapping[str, str]) -> bool:
    found = _FROM.fullmatch(value)
    return found is not None and bool(found[1]) and not environment.get(found[2])


def _filled(value: str, environment: Mapping[str, str]) -> str:
    found = _FROM.fullmatch(value)
    return value if found is None else environment.get(found[2], "")


def _installed(
    run: tuple[str, ...], environment: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[Path, ...], dict[str, str]]:
    """The words to run, what the sandbox must show for them, and where to look for programs.

    A program outside the system's folders is shown by itself; one of npm's with the packages and programs beside it.
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
    """The outermost project or repository that one is in. The home folder is none: programs of the user lie there."""
    here, home = (Path(os.path.realpath(each)) for each in (".", environment.get("HOME") or "/"))
    folders = [each for each in (here, *here.parents) if not home.is_relative_to(each)]
    marked = [each for each in folders if os.path.lexists(each / "dugnad.toml") or os.path.lexists(each / ".git")]
    return [here / ".dugnad", *folders[:1], *marked][-1]


def open_command(name: str, commands: Mapping[str, ExternalCommand]) -> ExternalCommand:
    """The command of that name, if the user has one."""
    word = name.removeprefix(PREFIX)
    if (found := commands.get(word)) is None:
        hint = nearest(word, commands) if commands else "add the table, and it may be empty for claude and codex."
        raise ModelMisconfigured(f"{name}: your config.toml has no [commands.{word}]; {hint}")
    if found.missing:
        variable = found.missing[0].partition(":")[2]
        raise ModelMisconfigured(f"{name} is to be given {variable}, which is not set.")
    return found
