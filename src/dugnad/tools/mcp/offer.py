"""MCP servers as tools: their settings, what they offer, and the text that a person approves. Pure.

The descriptions of a server's tools go into every request to a model, so a person approves them like a program. One
text holds how the server is run or reached, and every tool with its description and schema. That text is shown, its
hash is kept, and tools are made from it, never from what the server says later.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import ToolError
from ...logs.secrets import without
from ...models.port import ToolSpec
from ...prompts import tell
from ...text import Told, clean, one_line, shows
from ..context import Context, Ends
from ..tool import BadCall, Tool

TOOLS_MAX = 200  # Of one server.
TEXT_BYTES_MAX = 512 * 1024  # Of the text that is approved.
_TOO_LONG = f"it describes its tools with more than {TEXT_BYTES_MAX // 1024} KiB"
_NAME_CHARS_MAX = 64  # What providers accept.
_DESCRIPTION_CHARS_MAX = 4_000
_SCHEMA_BYTES_MAX = 32 * 1024
_DEPTH_MAX = 24
_DIFF_LINES_MAX = 5_000  # To compare, and to show.
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # What providers accept as the name of an argument.
# What all providers accept at the top of a schema; one of them refuses a whole request for an anyOf there.
_TOP = ("type", "properties", "required", "additionalProperties", "$defs", "definitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server as its user has set it up: a command to run in the sandbox, or an address.

    `environment` and `headers` hold references such as "env:GITHUB_TOKEN"; `secrets` is what those variables held.
    """

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()  # What the sandboxed command may reach.
    services: tuple[str, ...] = ()  # Servers of the user's own that it may use, such as localhost:4000.
    readable: tuple[str, ...] = ()  # Folders outside /usr that it may read, such as a toolchain.
    tree: bool = False  # It works in the project's files, not in an empty folder.
    roles: tuple[str, ...] = ()  # The roles that may use it; none: everybody may.
    seconds: float = 60.0  # Of one call.
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def missing(self) -> list[str]:
        """Variables that it needs and that are not set."""
        named = (reference.partition("env:")[2] for reference in (*self.environment.values(), *self.headers.values()))
        return sorted({each for each in named if not self.secrets.get(each)})

    def filled(self, references: Mapping[str, str]) -> dict[str, str]:
        """With the values of the referenced variables."""
        parts = {name: reference.partition("env:") for name, reference in references.items()}
        return {name: before + self.secrets[variable] for name, (before, _, variable) in parts.items()}

    def without_secrets(self, text: str) -> str:
        """A text of the server, without its secrets."""
        return without(text, {value: f"[{variable}]" for variable, value in self.secrets.items()})


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool as its server describes it."""

    name: str
    description: str
    schema: Mapping[str, Any]


# The text that is approved.


def text_of(server: Server, offers: Sequence[Offer]) -> str:
    """The text that is approved: JSON on many lines, without invisible characters."""
    if twice := [name for name, count in Counter(offer.name for offer in offers).items() if count > 1]:
        raise ToolError(f"it offers two tools named {one_line(twice[0], 60)!r}")
    if len(offers) > TOOLS_MAX:
        raise ToolError(f"it offers more than {TOOLS_MAX} tools")
    said: dict[str, Any] = {
        "command": list(server.command), "url": server.url, "environment": dict(server.environment),
        "headers": dict(server.headers), "hosts": list(server.hosts), "services": list(server.services),
        "readable": list(server.readable), "tree": server.tree,
        "tools": {
            clean(offer.name): {"description": clean(offer.description).split("\n"), "schema": offer.schema}
            for offer in offers
        },
    }  # fmt: skip
    given = {key: value for key, value in said.items() if value}
    text = json.dumps(given, indent=2, sort_keys=True, ensure_ascii=False)
    if len(text) > TEXT_BYTES_MAX:  # Before each character is looked at.
        raise ToolError(_TOO_LONG)
    text = "".join(each if shows(each) or each == "\n" else _escaped(each) for each in text)
    text = text.replace("'''", r"\u0027\u0027\u0027")  # What ends a text in TOML, where this one is kept.
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise ToolError(_TOO_LONG)
    return text


def offers_of(text: str) -> tuple[Offer, ...]:
    """The tools of an approved text."""
    tools = json.loads(text).get("tools", {})
    return tuple(Offer(name, "\n".join(each["description"]), each["schema"]) for name, each in tools.items())


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def difference(before: str, after: str) -> str:
    """What changed, as lines with - and +."""
    old, new = before.split("\n"), after.split("\n")
    if max(len(old), len(new)) > _DIFF_LINES_MAX:
        return f"- {len(old):,} lines\n+ {len(new):,} lines, too many to compare"
    lines = difflib.unified_diff(old, new, n=2, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++")))


def _escaped(character: str) -> str:
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[place : place + 4]}" for place in range(0, len(code), 4))


# Its tools.


class ServerTool(Tool):
    """A tool of a server. It acts on the outside world, so it runs alone, and not again after a crash."""

    def __init__(self, spec: ToolSpec, call: Callable[[dict[str, Any]], Awaitable[str]]) -> None:
        super().__init__(call, name=spec.name, prompt="")
        self.spec = spec

    def check(self, arguments: str) -> dict[str, Any]:
        """It must be an object with the required keys. The server checks the rest."""
        try:
            found = json.loads(arguments.strip() or "{}")
        except (ValueError, RecursionError):
            raise self._not_called(tell("results.not_json")) from None
        if not isinstance(found, dict):
            raise self._not_called(tell("results.not_an_object"))
        if lacking := [name for name in self.spec.schema.get("required", ()) if name not in found]:
            raise self._not_called(tell("results.missing", arguments=", ".join(lacking)))
        return found

    def _not_called(self, why: Told) -> BadCall:
        return BadCall(tell("results.not_called", tool=self.name, why=why))

    async def run(self, context: Context, arguments: dict[str, Any]) -> str | Ends:
        return str(await self.function(arguments))


def specs_of(server: Server, offers: Sequence[Offer]) -> tuple[dict[str, ToolSpec], list[str]]:
    """What a model is told about each tool, by its name on the server; and a sentence for each one left out."""
    names = {offer.name: _tool_name(server.name, offer.name) for offer in offers}
    taken = Counter(names.values())
    found: dict[str, ToolSpec] = {}
    left_out: list[str] = []
    for offer in offers:
        why = "another tool has the same name" if taken[names[offer.name]] > 1 else _unusable(offer.schema)
        if why:
            tool = repr(one_line(offer.name, 60))
            left_out.append(f"The tool {tool} of the MCP server {server.name} is left out: {why}.")
            continue
        schema = {key: _visible(offer.schema[key]) for key in _TOP if key in offer.schema}
        said = _visible(offer.description).strip()[:_DESCRIPTION_CHARS_MAX]
        description = f"{tell('results.from_server', server=server.name)} {said}".strip()
        whole = {"type": "object", "properties": {}, **schema}
        found[offer.name] = ToolSpec(name=names[offer.name], description=description, schema=whole)
    return found, left_out


def _tool_name(server: str, tool: str) -> str:
    return f"mcp__{server}__{re.sub('[^A-Za-z0-9_-]', '_', tool)}"[:_NAME_CHARS_MAX]


def _unusable(schema: Mapping[str, Any]) -> str:
    """Why a provider would refuse a request with this schema; empty: it would not."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        return "its arguments are not an object"
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return "its list of required arguments is not a list of names"
    if any(depth > _DEPTH_MAX for depth, _, _ in _walk(schema)):
        return f"its schema is nested more than {_DEPTH_MAX} deep"
    if len(json.dumps(schema)) > _SCHEMA_BYTES_MAX:
        return f"its schema has more than {_SCHEMA_BYTES_MAX // 1024} KiB"
    if strange := [name for name in properties if not _PROPERTY.fullmatch(name)]:
        return f"providers do not accept an argument named {one_line(strange[0], 60)!r}"
    if any(key == "$ref" and not str(value).startswith("#") for _, key, value in _walk(schema)):
        return "its schema refers to another document"
    return ""


def _walk(value: Any, depth: int = 1) -> Iterator[tuple[int, Any, Any]]:
    """Every entry of a nested value, with its depth, down to one level below the limit."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in entries:
        yield depth, key, each
        if depth <= _DEPTH_MAX:
            yield from _walk(each, depth + 1)


def _visible(value: Any) -> Any:
    """Without characters that a model reads and a person cannot see."""
    if isinstance(value, str):
        return "".join(each for each in clean(value) if shows(each) or each in "\n\t")
    if isinstance(value, dict):
        return {_visible(key): _visible(each) for key, each in value.items()}
    return [_visible(each) for each in value] if isinstance(value, list) else value


# The result of a call.


def result_text(result: Mapping[str, Any]) -> str:
    """A result as a model reads it. Parts that are not text are only named."""
    parts = [_part_text(part) for part in result.get("content", ())]
    if "structuredContent" in result and not any(part.get("type") == "text" for part in result.get("content", ())):
        parts.append(json.dumps(result["structuredContent"], indent=1, ensure_ascii=False))
    return "\n".join(parts) or tell("results.said_nothing")


def _part_text(part: Mapping[str, Any]) -> str:
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text", ""))
    if kind in ("image", "audio"):
        return f"[{kind} {_facts(part.get('mimeType'), part.get('data'))}, not shown]"
    if kind == "resource_link":
        return f"[resource {one_line(str(part.get('name', '')))} at {one_line(str(part.get('uri', '')), 300)}]"
    if kind == "resource":
        inside = part.get("resource", {})
        where = f"resource {one_line(str(inside.get('uri', '')), 300)}"
        return f"[{where}]\n{inside['text']}" if "text" in inside else f"[{where}, {_facts(None, inside.get('blob'))}]"
    return f"[{one_line(str(kind), 40)}, not shown]"


def _facts(kind: Any, data: Any) -> str:
    return f"{one_line(str(kind or 'of unknown kind'), 80)}, {len(str(data or '')) * 3 // 4:,} bytes"
