"""The user's own configuration, config.toml: models, the sandbox, MCP servers, external agents and policies.

Keys and endpoints come from here and from the environment, never from a project. The file names the variable that
holds a key, and never the key itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from ..agent.external.command import PREFIXES, AcpCommand, ExternalCommand
from ..errors import BadInput, ModelMisconfigured
from ..models import Model, Price, open_model
from ..tools.mcp.offer import Server
from ..tools.policy import ACP, Rules
from .agents import command_name, open_command, read_acp, read_command
from .kinds import Hosts, address, words
from .reader import UNREAD, FileLocation, Key, Pattern, mapping, nearest, read, read_toml, shown, user_file
from .servers import read_server, server_name

_SECRETS = (
    'a secret is in no file; name the variable that holds it: api_key_env = "MY_KEY" for a model, '
    'environment = { TOKEN = "env:TOKEN" } for a server or a command.'
)
# In capitals, so that few keys look like one. No message shows the value: it may be the key itself.
_VARIABLE = Pattern("[A-Z_][A-Z0-9_]*", " must be the name of a variable such as MY_KEY, not the key.")
_MODEL = Pattern(r"(?s).*:.*", ': {} must be provider:model, for example [models."openai:llama3"].')
_ADDRESS = partial(address, "http://localhost:11434/v1", "name the variable that holds the key as api_key_env")
_FOLDER = Pattern("[/~].*", ": {} must be a project's folder, from / or ~ on.")
_NOTIFY = partial(words, '"notify-send", "--app-name=dugnad"')
_Dollars = Annotated[float, 0]


def policies(place: FileLocation, value: Any) -> Rules:
    """Decisions by tool, for everybody and in tables for roles. A name that no tool has would protect nothing."""
    from ..acp.requests import KINDS
    from ..tools.built_in import BUILT_IN, LEADING, OF_A_TREE  # Here, since most commands read no policy.

    rules = Rules.of(mapping(place, value), place.file)
    known = [*(each.name for each in (*BUILT_IN, *LEADING)), *OF_A_TREE, *(f"{ACP}{kind}" for kind in KINDS)]
    for name in rules.strange(known):
        raise BadInput(
            f"{place.file}: {place.table} speaks of {shown(name)}, and no tool has that name; {nearest(name, known)}"
        )
    return rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """[models."NAME"]: the server of a model, its key, and what the user knows of it. None: what is generally known."""

    base_url: Annotated[str | None, _ADDRESS] = None
    api_key_env: Annotated[str | None, _VARIABLE] = None
    api_key: Annotated[str | None, UNREAD] = field(default=None, repr=False)
    price_input: _Dollars | None = None
    price_output: _Dollars | None = None
    window_tokens: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None

    def __post_init__(self) -> None:
        if (self.price_input is None) != (self.price_output is None):
            raise BadInput("has a price for one side only; give price_input and price_output.")

    @property
    def price(self) -> Price | None:
        if self.price_input is None or self.price_output is None:
            return None
        return Price(input=self.price_input, output=self.price_output)


def _endpoint(place: FileLocation, value: Any) -> Endpoint:
    found = read(Endpoint, place, value)
    return replace(found, api_key=place.environment.get(found.api_key_env or "") or None)


def _servers(place: FileLocation, value: Any) -> tuple[Server, ...]:
    given = mapping(place, value)
    return tuple(read_server(place.under(server_name(place, name)), each) for name, each in given.items())


# External agents, chosen as command:NAME and acp:NAME.
_Commands = Mapping[Annotated[str, command_name], Annotated[ExternalCommand, read_command]]
_AcpAgents = Mapping[Annotated[str, command_name], Annotated[AcpCommand, read_acp]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSettings:
    """[sandbox]"""

    hosts: Hosts = ()  # That commands can reach in tasks that ask for the network.
    readable: tuple[str, ...] = ()  # Folders that commands may read, such as toolchains in your home.


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSettings:
    """What the user's file and environment say, read once."""

    file: Annotated[Path | None, UNREAD] = None  # None: there is none.
    base_url: Annotated[str | None, UNREAD] = None  # DUGNAD_BASE_URL.
    model: str | None = None
    boards: tuple[str, ...] = ()  # Servers that a project may have its board on.
    notify: Annotated[tuple[str, ...], _NOTIFY] = ()  # Started for each thing that waits for the person.
    policies: Annotated[Rules, policies] = field(default_factory=Rules)
    sandbox: SandboxSettings = field(default_factory=SandboxSettings)
    remotes: Mapping[Annotated[str, _FOLDER], str] = field(default_factory=dict)  # The git remote of each project.
    models: Mapping[Annotated[str, _MODEL], Annotated[Endpoint, _endpoint]] = field(default_factory=dict)
    commands: _Commands = field(default_factory=dict)
    acp: _AcpAgents = field(default_factory=dict)
    # MCP servers, whose tools teammates are given once they are approved.
    servers: Annotated[tuple[Server, ...], Key("mcp", _servers)] = ()

    def endpoint(self, model_name: str) -> Endpoint:
        """What the file says about this model, with DUGNAD_BASE_URL as its server if the file names none.

        That server is only for models of OpenAI's protocol, and not for a model whose key the file names: a key goes
        only to the server that it was meant for.
        """
        own = self.models.get(model_name, Endpoint())
        if model_name.startswith("openai:") and own.base_url is None and own.api_key_env is None:
            return replace(own, base_url=self.base_url)
        return own

    def remote_of(self, project: Path) -> str | None:
        """The git remote through which hosts on several machines share this project's work."""
        named = {Path(folder).expanduser().resolve(): remote for folder, remote in self.remotes.items()}
        return named.get(project.resolve())


def read_user(environment: Mapping[str, str] | None = None) -> UserSettings:
    """The user's settings. A refusal names the file and the place."""
    environment = os.environ if environment is None else environment
    base_url = environment.get("DUGNAD_BASE_URL") or None
    if base_url is not None:
        _ADDRESS(FileLocation(file="the environment", path=("DUGNAD_BASE_URL",)), base_url)
    path = user_file(environment)
    if path is None or not os.path.lexists(path):
        return UserSettings(base_url=base_url)
    place = FileLocation(file=str(path), secrets=_SECRETS, environment=environment)
    return replace(read(UserSettings, place, read_toml(path, place)), file=path, base_url=base_url)


def open_named_model(name: str | None, user: UserSettings) -> Model:
    """The model of that name as the user set it up; without a name, the user's own, or the first with a key."""
    if name is None and user.model is None:
        return open_model()
    chosen = name or user.model or ""
    if chosen.startswith(PREFIXES):
        return open_command(chosen, user.commands, user.acp)
    endpoint = user.endpoint(chosen)
    if endpoint.api_key_env and not endpoint.api_key:
        raise ModelMisconfigured(f"The key of {chosen} is to come from {endpoint.api_key_env}, which is not set.")
    return open_model(
        chosen, api_key=endpoint.api_key, base_url=endpoint.base_url, price=endpoint.price,
        window_tokens=endpoint.window_tokens,
    )  # fmt: skip
