"""Finding and reading a project's configuration, `dugnad.toml`.

It only reads. A project may come from anyone, so its file may choose among what the user has, and never where the
user's secrets go: no keys, no endpoints, no server that the user did not name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import BadInput, ToolError
from ..settings import AgentLimits, Limits, TeamLimits
from ..text import shows
from ..tools.policy import Policy, Rules
from ..types import HUMAN, Budget
from ..workspace.files.patterns import file_pattern
from ..workspace.git.ownership import refuse_strangers
from . import reader
from .kinds import BudgetTable, Line, board_name
from .reader import UNREAD, FileLocation, Key, Pattern, nearest, read, shown, text
from .user import UserSettings, policies, read_user

FILE = "dugnad.toml"
_PROMPT_BYTES_MAX = Limits().body_bytes_max
_MODEL = Pattern(  # A server's address does not match.
    r"(?!.*(//|\.\.))[a-z][a-z0-9_/-]*:[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,150}",
    " must be provider:model, for example anthropic:claude-sonnet-5-5, not {}.",
)
_LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
_BOARD_OPTIONS = frozenset({"board", "sslmode"})
_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")  # The strictest last.
_SECRETS = "keys and endpoints come from the environment or from ~/.config/dugnad/config.toml only."
# The first is never more than the second.
_ORDERED = (
    ("lease_seconds", "lease_seconds_max"), ("backoff_seconds", "backoff_seconds_max"),
    ("cooldown_seconds", "cooldown_seconds_max"), ("low_share", "micro_share"), ("keep_share", "micro_share"),
)  # fmt: skip


def _prompt_file(place: FileLocation, value: Any) -> str:
    path = Path(place.root or "", text(place, value))
    return reader.read_text(path, f"{place} = {shown(value)}", place, bytes_max=_PROMPT_BYTES_MAX)


def _model(place: FileLocation, value: Any) -> str:
    """provider:model, or a script inside the project."""
    if not isinstance(value, str) or not value.startswith("scripted:"):
        return _MODEL(place, value)
    root = place.root or Path()
    path = root / text(place, value).removeprefix("scripted:")
    if reader.leads_out(path, root):
        raise BadInput(f"{place} plays a script outside the project; keep the script inside it.")
    return f"scripted:{path}"


def _name(what: str, place: FileLocation, value: Any) -> str:
    if value == HUMAN:
        raise BadInput(f"{place}: {HUMAN!r} is the person in front of the board; choose another name.")
    return board_name(what, place, value)


_role = partial(_name, "role")


def _roles(place: FileLocation, value: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_role(place, each) for each in (value if isinstance(value, list) else [value])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What teammates of a role have in common."""

    prompt: Annotated[str, "prompt", Key("prompt_file", _prompt_file)] = ""
    model: Annotated[str | None, _model] = None
    plan: bool = False  # An approved plan is needed before anything may be changed.


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(Role):
    """A teammate that the project names. What its table says comes before what its roles say."""

    name: Annotated[str, UNREAD]
    roles: Annotated[tuple[str, ...], _roles, "role", "roles"] = ()
    lead: bool = False
    keep_context: bool = False  # Its conversation goes on from task to task.


def _path_pattern(place: FileLocation, value: Any) -> str:
    try:
        file_pattern(text(place, value))
    except ToolError as wrong:
        raise BadInput(f"{place}: {wrong}") from None
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRule:
    """[review]: who reviews what changes the project, and from which size on. Without a size and paths: everything."""

    role: Annotated[str, _role]
    from_lines: int | None = None  # Lines that were added or removed.
    paths: tuple[Annotated[str, _path_pattern], ...] = ()  # What is reviewed whatever its size.

    @property
    def when(self) -> str:
        """The condition, in words; empty: always."""
        size = [f"it changes {self.from_lines:,} lines or more"] if self.from_lines is not None else []
        return " or ".join(size + [f"it changes {each}" for each in self.paths])

    def asks(self, changed: Mapping[str, int]) -> bool:
        """Whether work is reviewed that changes so many lines of these files."""
        matching = [file_pattern(each) for each in self.paths]
        large = self.from_lines is not None and sum(changed.values()) >= self.from_lines
        return not self.when or large or any(each(tuple(path.split("/"))) for each in matching for path in changed)


def _review(place: FileLocation, value: Any) -> str | ReviewRule:
    """A role, or a table with more."""
    return read(ReviewRule, place, value) if isinstance(value, dict) else _role(place, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _TeamTable:
    name: Line | None = None
    lead: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _McpTable:
    use: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()


def _mcp(place: FileLocation, value: Any) -> _McpTable:
    """Which of the user's servers this project uses. Only the user says what runs or connects."""
    for server, each in value.items() if isinstance(value, dict) else ():
        if isinstance(each, dict):
            raise BadInput(
                f"{FILE}: {place.under(server).table} does not belong there: a project starts no server. "
                f"Put it into ~/.config/dugnad/config.toml; the project may name it in [mcp] use."
            )
    return read(_McpTable, place, value)


def _limits(place: FileLocation, value: Any) -> tuple[Limits, AgentLimits]:
    found: tuple[Limits, AgentLimits] = reader.parts(Limits, AgentLimits)(place, value)
    for low, high in _ORDERED:
        for limits in found:
            if hasattr(limits, low) and getattr(limits, low) > getattr(limits, high):
                raise BadInput(f"{FILE}: [limits] {low} is more than {high}, which is {getattr(limits, high):g}.")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _ProjectFile:
    board: str | None = None
    model: Annotated[str | None, _model] = None
    summary_model: Annotated[str | None, _model] = None
    check: tuple[str, ...] = ()
    review: Annotated[str | ReviewRule | None, _review] = None
    team: Annotated[tuple[_TeamTable, TeamLimits], reader.parts(_TeamTable, TeamLimits)] = (_TeamTable(), TeamLimits())
    roles: Mapping[Annotated[str, _role], Role] = field(default_factory=dict)
    members: Mapping[Annotated[str, partial(_name, "teammate's name")], Member] = field(default_factory=dict)
    policies: Annotated[Rules, policies] = field(default_factory=Rules)
    budget: BudgetTable = field(default_factory=BudgetTable)
    limits: Annotated[tuple[Limits, AgentLimits], _limits] = (Limits(), AgentLimits())
    mcp: Annotated[_McpTable, _mcp] = field(default_factory=_McpTable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What a project says about its team; without a file, the defaults."""

    root: Path
    file: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)  # What the file says, with the files that it names.
    board: str | None = None  # As it is written; `board_url` says what to open.
    model: str | None = None
    summary_model: str | None = None  # For summaries; None: the teammate's own.
    team: str
    lead: bool = True
    roles: Mapping[str, Role] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    checks: tuple[str, ...] = ()  # Commands that must succeed before a task that changes the project is done.
    review: ReviewRule | None = None  # Who reviews what changes the project.
    policies: Rules = field(default_factory=Rules)  # The project's own; `policy` adds the user's.
    budget: Budget = field(default_factory=Budget)
    limits: Limits = field(default_factory=Limits)
    agent_limits: AgentLimits = field(default_factory=AgentLimits)
    team_limits: TeamLimits = field(default_factory=TeamLimits)
    servers: tuple[str, ...] | None = None  # Of the user's MCP servers, only these; None: all,
    servers_without: tuple[str, ...] = ()  # but not these.

    def board_url(self, given: str | None, environment: Mapping[str, str], user: UserSettings | None = None) -> str:
        """The first of --board, DUGNAD_BOARD, dugnad.toml, and a file under the project's root. config.toml is read
        only for a server that dugnad.toml names, if the caller has not read it."""
        if named := given or environment.get("DUGNAD_BOARD"):
            return named
        board = self.board or "sqlite:///.dugnad/board.db"
        if board.startswith(("postgresql://", "postgres://")):
            _refuse_strange_server(board, environment, user or read_user(environment))
        if not board.startswith("sqlite:///") or board == "sqlite:///:memory:":
            return board  # `open_board` refuses an unknown kind.
        path = self.root / board.removeprefix("sqlite:///")
        if reader.leads_out(path, self.root):
            raise BadInput(f"{FILE}: the board {path} lies outside the project; name it with --board or DUGNAD_BOARD.")
        return f"sqlite:///{path}"

    @property
    def reviewer(self) -> str | None:
        return None if self.review is None else self.review.role

    def model_name(self, given: str | None, environment: Mapping[str, str]) -> str | None:
        """The first of --model, DUGNAD_MODEL and dugnad.toml. None: the user's own, or the first with a key."""
        return given or environment.get("DUGNAD_MODEL") or self.model

    def policy(self, user: UserSettings) -> Policy:
        """For each tool the stricter of what the user and the project say."""
        return Policy((user.policies, self.policies))


def read_project(start: Path, *, environment: Mapping[str, str] | None = None) -> Project:
    """The project around `start`: the nearest folder upwards with dugnad.toml, or else with .git, or else itself."""
    environment = os.environ if environment is None else environment
    start = Path(os.path.realpath(start))
    folders = _upwards(start, environment.get("HOME", ""))
    root = next((each for each in folders if os.path.lexists(each / FILE)), None)
    marked = root or next((each for each in folders if os.path.lexists(each / ".git")), None)
    if marked is not None:  # In a folder that many share, another user could have put it there.
        _refuse_strangers(marked)
    if root is None:
        root = marked or start
        return Project(root=root, team=_team_name(root))
    place = FileLocation(file=FILE, secrets=_SECRETS, root=root, environment=environment)
    given = reader.read_toml(root / FILE, place)
    return _project(root, read(_ProjectFile, place, given), given)


def _project(root: Path, found: _ProjectFile, given: Mapping[str, Any]) -> Project:
    team, team_limits = found.team
    members = tuple(sorted(found.members.values(), key=lambda each: each.name))  # Their order means nothing.
    for member in members:
        for role in member.roles:
            if found.roles and role not in found.roles:
                raise BadInput(
                    f"{FILE}: [members.{member.name}] has role {role!r}, which no [roles] describes; "
                    f"{nearest(role, found.roles)}"
                )
    leads = [name for name, member in found.members.items() if member.lead]
    if len(leads) > 1 or (leads and not team.lead):
        raise BadInput(f"{FILE}: {' and '.join(leads)} would lead, and a team has one lead, or none if [team] says so.")
    limits, agent_limits = found.limits
    review = ReviewRule(role=found.review) if isinstance(found.review, str) else found.review
    return Project(
        root=root, file=root / FILE, given=MappingProxyType(reader.as_given(found, given)), board=found.board,
        model=found.model, summary_model=found.summary_model, team=team.name or _team_name(root), lead=team.lead,
        roles=found.roles, members=members,
        checks=found.check, review=review, policies=found.policies, budget=found.budget.caps(), limits=limits,
        agent_limits=agent_limits, team_limits=team_limits, servers=found.mcp.use, servers_without=found.mcp.without,
    )  # fmt: skip


def _upwards(start: Path, home: str) -> list[Path]:
    """The folders from here up to the user's home or, outside of it, up to the top of the file system."""
    folders = [start, *start.parents]
    top = Path(os.path.realpath(home)) if home.startswith("/") else None
    return folders[: folders.index(top) + 1] if top in folders else folders


def _refuse_strangers(root: Path) -> None:
    try:
        refuse_strangers(root, root / FILE, root / ".git", root / ".dugnad")
    except ToolError as stranger:
        raise BadInput(str(stranger)) from None


def _team_name(root: Path) -> str:
    return "".join(each for each in root.name if shows(each))[:80].strip() or "team"


def _refuse_strange_server(address: str, environment: Mapping[str, str], user_settings: UserSettings) -> None:
    """Refuse a server that the user did not name. The driver sends PGPASSWORD to any server, and who has the board can
    act in any name."""
    try:
        parts = urlsplit(address)
        options = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        raise BadInput(f"{FILE}: the board's address cannot be read; write postgresql://host/database.") from None
    user, _, servers = parts.netloc.rpartition("@")
    if ":" in user:
        raise BadInput(f"{FILE}: the board's address holds a password; set PGPASSWORD or use a password file.")
    if "@" in user:  # The driver reads the server behind the first one, and not behind the last.
        raise BadInput(f"{FILE}: the board's address has more than one '@'; write postgresql://user@host/database.")
    if strange := {name for name, _ in options} - _BOARD_OPTIONS:
        names = ", ".join(sorted(map(shown, strange)))
        raise BadInput(f"{FILE}: the board's address may say board and sslmode, not {names}; use DUGNAD_BOARD.")
    if any(re.match(r"public$|information_schema$|pg_", value.lower()) for name, value in options if name == "board"):
        raise BadInput(f"{FILE}: the board would lie among tables of others; name it otherwise.")
    for mode in [value for name, value in options if name == "sslmode"]:
        _refuse_less_secrecy(mode, environment.get("PGSSLMODE") or "prefer")
    trusted = {each.lower() for each in user_settings.boards}
    for server in servers.split(","):
        host = unquote(re.sub(r":\d*$", "", server)).strip("[]").lower()
        port = server.rpartition(":")[2] if re.search(r":\d+$", server) else ""
        if host in _LOCAL and host not in trusted and (user or port not in ("", environment.get("PGPORT") or "5432")):
            raise BadInput(  # Any user of this machine may listen there and get PGPASSWORD.
                f"{FILE}: the board's address names {'a user' if user else f'port {port}'} on this machine, and a "
                f"project does not choose that for you: set {'PGUSER' if user else 'PGPORT'}, or DUGNAD_BOARD."
            )
        if host not in _LOCAL and host not in trusted:
            raise BadInput(
                f"{FILE}: the board is on {shown(host)}, and a project does not choose a server for you: "
                f"write boards = [{shown(host)}] in ~/.config/dugnad/config.toml, or set DUGNAD_BOARD."
            )


def _refuse_less_secrecy(mode: str, own: str) -> None:
    """For the driver the address counts more than PGSSLMODE. An unknown mode counts as less strict."""
    if mode not in _SSL_MODES or own not in _SSL_MODES or _SSL_MODES.index(mode) < _SSL_MODES.index(own):
        raise BadInput(
            f"{FILE}: the board's address asks for sslmode {shown(mode)}, and yours is {shown(own)} (PGSSLMODE): a "
            f"project may ask for more, not for less; take it out, or set DUGNAD_BOARD."
        )
