"""Which tools are allowed, which a person is asked about first, and which are denied.

Pure: rules are read from a mapping, as a file gives it, and decisions are values. The agent waits for the answer and
acts on it. The sandbox is the boundary; a policy is what a person wants on top of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from ..board import rules
from ..errors import BadInput, BadText, ToolError
from ..prompts import tell
from ..settings import Limits
from ..text import one_line, quote, shows
from ..types import Task

Decision = Literal["allow", "ask", "deny"]
DECISIONS: tuple[Decision, ...] = ("allow", "ask", "deny")  # From the mildest to the strictest.
QUESTION_BYTES_MAX = 64 * 1024  # A person would not read a longer one before saying yes.
_NAME = re.compile(r"[A-Za-z0-9_.*-]{1,128}")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}(?: [0-9]+, [a-z_]+)?")
_CALL = re.compile(r"\(call t[0-9]+\.e[0-9]+\.[0-9]+\.[0-9]+\)")
# Which tool took the place of which. A rule for one of the two is a rule for the other.
SUCCESSORS = {
    "schedule_followup": "add_tasks", "add_task": "add_tasks", "delegate": "add_tasks", "release": "give_up",
    "idle": "give_up", "broadcast": "send_message", "read_notes": "notes", "search_notes": "notes",
    "approve_plan": "respond",
}  # fmt: skip
ACP = "acp__"  # Begins the names for the kinds of tools that an agent has itself, and asks about: acp__execute.
_QUESTIONS = frozenset({"ask_human", "submit_plan"})  # A person is not asked whether a teammate may ask.


def strictest(decisions: Iterable[Decision]) -> Decision:
    return max(decisions, key=DECISIONS.index, default="allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What one file says for everybody, and for each role. A key is a tool's name, or a pattern of names."""

    general: Mapping[str, Decision] = field(default_factory=dict)
    roles: Mapping[str, Mapping[str, Decision]] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any], file: str = "policies") -> Rules:
        """From a table such as {"bash": "ask", "reviewer": {"write_file": "deny"}}."""
        of_roles = {key: value for key, value in given.items() if isinstance(value, Mapping)}
        for role in of_roles:
            try:
                rules.name("role", role, Limits())
            except BadText as trouble:
                raise BadInput(f"{file}: [policies] {_shown(role)}: {trouble}") from None
        general = {key: value for key, value in given.items() if key not in of_roles}
        return cls(
            general=_entries(general, f"{file}: [policies]"),
            roles={role: _entries(each, f"{file}: [policies.{role}]") for role, each in of_roles.items()},
        )

    def decide(self, tool: str, roles: Iterable[str]) -> Decision:
        """A role's own entry comes before the general one. Of several roles the strictest counts. An entry for the
        tool that this one replaced, or was replaced by, counts as one for this tool."""
        names = _names(tool)
        general = _most_specific(self.general, names) or "allow"
        found = [_most_specific(self.roles.get(role, {}), names) or general for role in roles]
        return strictest(found) if found else general

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.general).union(*self.roles.values())

    def strange(self, known: Iterable[str]) -> list[str]:
        """Names that are no tool's. The tools of servers have two underscores in their names and are known later."""
        unknown = self.keys.difference(known)
        return sorted(key for key in unknown if "*" not in key and ("__" not in key or key.startswith(ACP)))


@dataclass(frozen=True, slots=True)
class Policy:
    """What several files say together: for each tool the strictest counts, so a second file can only narrow."""

    files: tuple[Rules, ...] = ()

    @classmethod
    def of(cls, given: Policy | Mapping[str, Any]) -> Policy:
        return given if isinstance(given, Policy) else cls((Rules.of(given),))

    def decide(self, tool: str, roles: Iterable[str] = ()) -> Decision:
        roles = tuple(roles)
        decision = strictest(each.decide(tool, roles) for each in self.files)
        return "allow" if decision == "ask" and tool in _QUESTIONS else decision

    def told(self, roles: Iterable[str] = ()) -> dict[str, Decision]:
        """What the files ask about or deny for these roles."""
        roles = tuple(roles)
        named = frozenset().union(*(each.keys for each in self.files))
        keys = sorted({*named, *(SUCCESSORS[key] for key in named if key in SUCCESSORS)})
        return {key: decision for key in keys if (decision := self.decide(key, roles)) != "allow"}


def _entries(given: Mapping[str, Any], where: str) -> dict[str, Decision]:
    found: dict[str, Decision] = {}
    for key, value in given.items():
        if not isinstance(key, str) or not _NAME.fullmatch(key):
            raise BadInput(f"{where} {_shown(key)} is not the name of a tool, nor a pattern such as mcp__github__*.")
        if value not in DECISIONS:
            raise BadInput(f"{where} {key} must be allow, ask or deny, not {_shown(value)}.")
        found[key] = value
    return found


def _names(tool: str) -> tuple[str, ...]:
    """The tool, with the one that took its place and those whose place it took."""
    after = [SUCCESSORS[tool]] if tool in SUCCESSORS else []
    return (tool, *after, *(old for old, new in SUCCESSORS.items() if new == tool))


def _most_specific(entries: Mapping[str, Decision], names: Iterable[str]) -> Decision | None:
    """A name comes before a pattern, and a longer pattern before a shorter; of equals the stricter counts."""
    if named := [entries[name] for name in names if name in entries]:
        return strictest(named)
    fitting = [key for key in entries if "*" in key and any(fnmatchcase(name, key) for name in names)]
    if not fitting:
        return None
    length = max(len(key.replace("*", "")) for key in fitting)
    return strictest(entries[key] for key in fitting if len(key.replace("*", "")) == length)


def _shown(value: object) -> str:
    return one_line(repr(value), 60)


def reaches(tool: str, arguments: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The tools whose rules apply to a call; without arguments, those that could apply."""
    if tool not in ("add_tasks", "add_task"):
        return (tool,)
    # A check is a command, so it falls under the rules of bash, too.
    given = [] if arguments is None else [arguments.get("check"), *(each.check for each in arguments.get("tasks", ()))]
    return (tool, "bash") if arguments is None or any(given) else (tool,)


# What a person is asked, and how an answer is understood.


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a person said about one call."""

    allowed: bool
    always: bool = False  # Also for further calls of the tool while the task is worked.
    words: str = ""


def question(teammate: str, task: Task, tool: str, arguments: Mapping[str, Any], key: str) -> str:
    """The whole call, harmless to a terminal. The same call gives the same text, so an answer counts only for the call
    that its question shows."""
    every = [part for name, value in arguments.items() for part in _parts(name, value)]
    given = [f"{_label(name)}\n{quote(_visible(_as_text(value)))}" for name, value in every]
    return "\n".join(
        [
            f"May {teammate} run {tool} for #{task.id} {one_line(task.title)!r}?",
            *(given or ["It has no arguments."]),
            f"Answer yes (this call runs), always (so does every further {tool} while #{task.id} is worked), or no and "
            "why. Anything else counts as no, with your words as the reason.",
            f"(call {key})",
        ]
    )


def can_be_asked(tool: str, asked: str) -> str:
    """The question, unless it is too long to be read."""
    if (size := len(asked.encode())) > QUESTION_BYTES_MAX:
        raise ToolError(tell("results.too_long_to_ask", tool=tool, size=size, most=QUESTION_BYTES_MAX))
    return asked


def is_question(text: str) -> bool:
    """Whether a question is about a call, so that it can be approved and rejected like a plan."""
    return bool(_CALL.fullmatch(text.rpartition("\n")[2]))


def verdict(text: str, accepted: bool | None) -> Permission:
    """Only a plain yes counts as yes. `accepted`: whether it was approved or rejected with a command."""
    word = text.strip().rstrip(".!").casefold()
    if word in ("no", "n") or accepted is False:
        return Permission(allowed=False, words="" if word in ("no", "n") else text.strip())
    if word in ("yes", "y", "always"):
        return Permission(allowed=True, always=word == "always")
    return Permission(allowed=bool(accepted), words=text.strip())


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The argument; or if it is a list of records, each of their fields that says something."""
    if not isinstance(value, list | tuple) or not value or not all(map(is_dataclass, value)):
        yield name, value
        return
    for number, each in enumerate(value, 1):
        said = {key.name: getattr(each, key.name) for key in fields(each)}
        yield from ((f"{name} {number}, {key}", part) for key, part in said.items() if part)


def _label(name: str) -> str:
    """A model chooses the names that a server's tool gets, so a name of several words could look like our own."""
    return (
        f"{name}:" if _PLAIN.fullmatch(name) else f"An argument with the name\n{quote(_visible(name))}\nand the value"
    )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    from pydantic_core import to_json

    # A set has another order in another process.
    plain = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
    return to_json(plain, fallback=str).decode()


def _visible(text: str) -> str:
    """Without characters that a terminal would obey or a person would not see."""
    return "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    return character if shows(character) or character in "\n\t" else character.encode("unicode_escape").decode()
