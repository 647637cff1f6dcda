"""The user's own configuration, and how any configuration file is read: strictly, and without trusting it.

Keys and endpoints come from here and from the environment, never from a project. The file names the variable that
holds a key; the secret itself is in no file. What a table may hold is a mapping from its keys to kinds: a kind takes a
place and a value, and gives the value back as the program wants it, or says in one sentence what is wrong with it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ..agent.external.command import PREFIX, ExternalCommand
from ..errors import BadInput, ModelMisconfigured
from ..models import Model, Price, open_model
from ..safe_open import owners, read_named
from ..tools import BUILT_IN, LEADING, OF_A_TREE
from ..tools.mcp.offer import Server
from ..tools.policy import Rules

_OF_A_MODEL = "name the variable that holds the key as api_key_env"  # Where its secret belongs.
FILE_BYTES_MAX = 64 * 1024  # Long prompts have files of their own.
_DOTS_MAX = 256  # In one line: the parser takes the cube of the parts of a dotted key.
_KEYS_SHOWN_MAX = 14
_NUMBER_MAX = 2**53  # Exact as a JSON number everywhere.
_SECRET = re.compile(r"key|secret|token|passw|credential|auth|endpoint|ur[il]$|host|proxy|header", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")  # Capitals, so that few keys look like one.
# Numbers that mean something at zero; every other one begins above it.
_MAY_BE_ZERO = frozenset(
    {"depth_max", "children_max", "repeats_max", "backoff_seconds", "cooldown_seconds", "retries_max", "retry_seconds",
     "give_back_seconds", "keep_share", "notes_max", "stop_seconds", "cancel_seconds", "shutdown_seconds",
     "check_rounds_max", "recent_messages_max"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FileLocation:
    """Where in which file a value stands."""

    file: str
    path: tuple[str, ...] = ()

    def under(self, key: str) -> FileLocation:
        return FileLocation(self.file, (*self.path, key))

    @property
    def table(self) -> str:
        return f"[{'.'.join(map(_bare, self.path))}]" if self.path else "the top level"

    def __str__(self) -> str:
        *above, key = self.path or ("it",)
        return f"{self.file}: {f'{FileLocation(self.file, tuple(above)).table} ' if above else ''}{_bare(key)}"


Kind = Callable[[FileLocation, Any], Any]


# Files.


def read_toml(path: Path, label: str, *, environment: Mapping[str, str], inside: Path | None = None) -> dict[str, Any]:
    source = read_text(path, label, environment=environment, inside=inside).replace("\r\n", "\n")
    for number, line_of_it in enumerate(source.split("\n"), start=1):
        if line_of_it.count(".") > _DOTS_MAX:
            raise BadInput(f"{label}: line {number} has more than {_DOTS_MAX} dots; put long text into a prompt_file.")
    try:
        return tomllib.loads(source)
    except tomllib.TOMLDecodeError as trouble:
        raise BadInput(f"{label} is not TOML: {trouble}.") from None
    except RecursionError:
        raise BadInput(f"{label} is nested too deeply; nothing in it needs more than three levels.") from None


def read_text(
    path: Path, label: str, *, environment: Mapping[str, str], inside: Path | None = None,
    bytes_max: int = FILE_BYTES_MAX,
) -> str:  # fmt: skip
    """A text file that may have been put there by anyone: no device, no link out of the project, none of others'."""
    if inside is not None and leads_out(path, inside):
        raise BadInput(f"{label} leads out of the project; keep the file inside it.")
    content, owner = read_named(path, label, bytes_max)
    if owner not in owners(environment):
        raise BadInput(
            f"{label} belongs to another user, who could make your teammates do anything: "
            f"look at it, then make it yours with `chown`."
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        raise BadInput(f"{label} is not UTF-8 text (at byte {trouble.start}); save it as UTF-8.") from None


def leads_out(path: Path, folder: Path) -> bool:
    """Whether what is really at `path` lies outside the folder. Links that lead in a circle lead nowhere."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


# Kinds.


def table(known: Mapping[str, Kind], *, secrets_belong: str = "") -> Kind:
    """A table with these keys and no others. `secrets_belong`: said of an unknown key that looks like a secret."""

    def read(place: FileLocation, given: Any) -> dict[str, Any]:
        for key in _mapping(place, given):
            if key not in known:
                raise _unknown(place, key, known, secrets_belong)
        return {key: known[key](place.under(key), value) for key, value in given.items()}

    return read


def tables(name: Kind, known: Mapping[str, Kind], *, secrets_belong: str = "") -> Kind:
    """Tables by names of the user's choice, each with these keys."""
    each = table(known, secrets_belong=secrets_belong)

    def read(place: FileLocation, given: Any) -> dict[str, dict[str, Any]]:
        return {name(place, key): each(place.under(key), value) for key, value in _mapping(place, given).items()}

    return read


def text(place: FileLocation, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise BadInput(f"{place} must be text, not {shown(value)}.")
    return value


def line(place: FileLocation, value: Any) -> str:
    if len(text(place, value)) > 80 or not value.isprintable():
        raise BadInput(f"{place} must be one short line, not {shown(value)}.")
    return str(value)


def texts(place: FileLocation, value: Any) -> tuple[str, ...]:
    return tuple(text(place, each) for each in (value if isinstance(value, list) else [value]))


def flag(place: FileLocation, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadInput(f"{place} must be true or false, not {shown(value)}.")
    return value


def whole(least: int = 1) -> Kind:
    def read(place: FileLocation, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _NUMBER_MAX:
            raise BadInput(f"{place} must be a whole number from {least} upwards, not {shown(value)}.")
        return value

    return read


def number(*, zero: bool = False, most: float = _NUMBER_MAX) -> Kind:
    def read(place: FileLocation, value: Any) -> float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not 0 <= value <= most or (value == 0 and not zero):  # Also refuses nan.
            least, up_to = ("from 0", "to") if zero else ("above 0", "and up to")
            bounds = f"{least} {up_to} {most:g}" if most < _NUMBER_MAX else "from 0 upwards" if zero else least
            raise BadInput(f"{place} must be a number {bounds}, not {shown(value)}.")
        return float(value)

    return read


def numbers_of(kind: type, **special: Kind) -> dict[str, Kind]:
    """A key for each field of a class of limits; those of `special` are given."""
    found: dict[str, Kind] = {}
    for each in fields(kind):
        zero = each.name in _MAY_BE_ZERO
        most = 1.0 if each.name.endswith("_share") else _NUMBER_MAX
        found[each.name] = whole(0 if zero else 1) if each.type == "int" else number(zero=zero, most=most)
    return found | special


def policies(place: FileLocation, value: Any) -> Rules:
    """Decisions by tool, for everybody and in tables for roles. A name nothing can have would protect from nothing."""
    rules = Rules.of(_mapping(place, value), place.file)
    known = [*(each.name for each in (*BUILT_IN, *LEADING)), *OF_A_TREE]
    for name in rules.strange(known):
        raise BadInput(f"{place.file}: {place.table} speaks of {shown(name)}, and no tool has that name; "
                       f"{nearest(name, known)}")  # fmt: skip
    return rules


def shown(value: Any) -> str:
    """A value in a sentence: short, and harmless to a terminal."""
    found = repr(value) if not isinstance(value, dict | list) else "a table" if isinstance(value, dict) else "a list"
    return found if len(found) <= 60 else f"{found[:56]}...{found[-1]}"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word."""
    words = sorted(known)
    if close := difflib.get_close_matches(word, words, n=1, cutoff=0.6):
        return f"did you mean {close[0]!r}?"
    if 0 < len(words) <= _KEYS_SHOWN_MAX:
        return f"there {'are' if len(words) > 1 else 'is'} {', '.join(words)}."
    return "docs/configuration.md lists what there is."


def _unknown(place: FileLocation, key: str, known: Iterable[str], secrets_belong: str) -> BadInput:
    close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.8)
    if secrets_belong and not close and _SECRET.search(key):
        return BadInput(f"{place.file}: {shown(key)} in {place.table} does not belong there: {secrets_belong}")
    return BadInput(f"{place.file}: {place.table} has no key {shown(key)}; {nearest(key, known)}")


def _mapping(place: FileLocation, given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise BadInput(f"{place} must be a table, not {shown(given)}.")
    return given


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{shown(key)[1:-1]}"'


# The user's settings.


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model is asked, with which key, and what the user knows of it. None: what is generally known."""

    base_url: str | None = None
    api_key_env: str | None = None
    api_key: str | None = field(default=None, repr=False)
    price: Price | None = None
    window_tokens: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    file: Path | None = None  # None: there is none.
    model: str | None = None
    boards: tuple[str, ...] = ()  # Servers a project may have its board on.
    policies: Rules = field(default_factory=Rules)
    models: Mapping[str, Endpoint] = field(default_factory=dict)
    commands: Mapping[str, ExternalCommand] = field(default_factory=dict)  # Others' agents, chosen as command:NAME.
    base_url: str | None = None  # DUGNAD_BASE_URL.
    hosts: tuple[str, ...] = ()  # That commands of tasks can reach which ask for the network.
    readable: tuple[str, ...] = ()  # Folders commands may read, such as toolchains in your home.
    servers: tuple[Server, ...] = ()  # MCP servers, whose tools teammates are given once they are approved.

    def endpoint(self, model_name: str) -> Endpoint:
        """What the file says of this very model, with DUGNAD_BASE_URL as the server where it names none.

        That server is for models of OpenAI's protocol only, and not for one whose key the file names: a key goes to
        the server it was meant for.
        """
        own = self.models.get(model_name, Endpoint())
        if model_name.startswith("openai:") and own.base_url is None and own.api_key_env is None:
            return replace(own, base_url=self.base_url)
        return own


def user_file(environment: Mapping[str, str]) -> Path | None:
    """Where the file would be."""
    for variable, below in (("XDG_CONFIG_HOME", "dugnad/config.toml"), ("HOME", ".config/dugnad/config.toml")):
        if environment.get(variable, "").startswith("/"):
            return Path(environment[variable], below)
    return None


def read_user(environment: Mapping[str, str] | None = None) -> UserSettings:
    from .servers import servers_from  # Here: it reads with what is defined above.

    environment = os.environ if environment is None else environment
    base_url = environment.get("DUGNAD_BASE_URL") or None
    if base_url is not None:
        web_address(FileLocation("the environment", ("DUGNAD_BASE_URL",)), base_url)
    path = user_file(environment)
    if path is None or not os.path.lexists(path):
        return UserSettings(base_url=base_url)
    from . import agents  # It is written in this module's kinds.

    label = str(path)
    given = _user_table()(FileLocation(label), read_toml(path, label, environment=environment))
    return UserSettings(
        file=path,
        model=given.get("model"),
        boards=given.get("boards", ()),
        policies=given.get("policies", Rules()),
        models=MappingProxyType(
            {name: _endpoint(f"{label}: [models.{name!r}]", entry, environment)
             for name, entry in given.get("models", {}).items()}
        ),
        commands=agents.read_commands(label, given.get("commands", {}), environment),
        base_url=base_url,
        **given.get("sandbox", {}),
        servers=servers_from(given.get("mcp", {}), environment),
    )  # fmt: skip


def open_named_model(name: str | None, user: UserSettings) -> Model:
    """The model of that name as the user has set it up; without a name, the user's own, or the first with a key."""
    if name is None and user.model is None:
        return open_model()
    chosen = name or user.model or ""
    if chosen.startswith(PREFIX):
        from .agents import open_command

        return open_command(chosen, user.commands)
    endpoint = user.endpoint(chosen)
    if endpoint.api_key_env and not endpoint.api_key:
        raise ModelMisconfigured(f"The key of {chosen} is to come from {endpoint.api_key_env}, which is not set.")
    return open_model(
        chosen,
        api_key=endpoint.api_key,
        base_url=endpoint.base_url,
        price=endpoint.price,
        window_tokens=endpoint.window_tokens,
    )


def _user_table() -> Kind:
    from .agents import commands_kind
    from .servers import server_tables

    entry = {
        "base_url": web_address, "api_key_env": _variable, "price_input": number(zero=True),
        "price_output": number(zero=True), "window_tokens": whole(), "requests_per_minute": whole(),
        "tokens_per_minute": whole(),
    }  # fmt: skip
    not_here = 'a secret is in no file; name the variable that holds it: api_key_env = "MY_KEY".'
    models = tables(_provider_and_model, entry, secrets_belong=not_here)
    sandbox = table({"hosts": texts, "readable": texts})
    known = {
        "model": text, "boards": texts, "models": models, "policies": policies, "sandbox": sandbox,
        "mcp": server_tables(), "commands": commands_kind(not_here),
    }  # fmt: skip
    return table(known, secrets_belong=not_here)


def _endpoint(where: str, given: Mapping[str, Any], environment: Mapping[str, str]) -> Endpoint:
    said = {key: value for key, value in given.items() if not key.startswith("price_")}
    prices = {key.removeprefix("price_"): value for key, value in given.items() if key.startswith("price_")}
    if len(prices) == 1:
        raise BadInput(f"{where} has a price for one side only; give price_input and price_output.")
    variable = given.get("api_key_env")
    return Endpoint(
        **said,
        price=Price(**prices) if prices else None,
        api_key=(environment.get(variable) or None) if variable else None,
    )


def _provider_and_model(place: FileLocation, name: str) -> str:
    if ":" not in name:
        raise BadInput(f'{place}: {shown(name)} must be provider:model, for example [models."openai:llama3"].')
    return name


def web_address(
    place: FileLocation, value: Any, example: str = "http://localhost:11434/v1", secret: str = _OF_A_MODEL
) -> str:
    try:
        parts = urlsplit(text(place, value))
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise BadInput(f"{place} must be an address such as {example}.")
    if parts.username is not None or parts.password is not None:
        raise BadInput(f"{place} holds a name or password; {secret}.")
    return str(value)


def _variable(place: FileLocation, value: Any) -> str:
    # The value is not shown: it may well be the key itself.
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise BadInput(f"{place} must be the name of a variable such as MY_KEY, not the key.")
    return value
