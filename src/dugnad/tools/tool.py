"""`@tool`: a typed function with a docstring becomes something a model can call.

The schema comes from the signature; what a model sends is checked against it. The description comes from the docstring,
and that of a built-in tool from `prompts/tools.md`.
A parameter annotated `Context` is filled in by the runtime and hidden from the model.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, get_type_hints, overload

from ..errors import DugnadError, ToolError
from ..models.port import ToolSpec
from ..prompts import tell, tool_prompt
from .context import Context, Ends, Keeper

_OWN = "argument_"
_SAYS_NOTHING = frozenset({"title", "description", "additionalProperties"})  # The description comes from elsewhere.
_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")


class BadCall(ToolError):
    """The model called a tool that does not exist, or with wrong arguments."""


@dataclass(eq=False)
class Tool:
    """A function that a model can call."""

    function: Callable[..., Any]
    _: KW_ONLY
    name: str = ""  # If not that of the function.
    safe: bool = False  # It may run beside others of the same reply.
    keyed: bool = False  # It does its work once per call, also when it is run again after a crash.
    own: bool = False  # It is one of ours: its bugs must not be told to the model as the model's mistakes.
    early: bool = False  # It may be used before the plan of the task is approved. A safe one always may.
    seconds: Callable[[Mapping[str, Any]], float | None] = lambda arguments: None  # For a call; None: as any tool.
    keeper: Keeper | None = None  # What stands behind it, beyond a call.
    prompt: str | None = None  # Its name in `prompts/tools.md`, if it is built in and offered.
    former: bool = False  # It can be called, but it is not offered any more.
    hidden: tuple[str, ...] = ()  # Parameters that its caller fills in, and no model.
    required: tuple[str, ...] = ()  # Arguments that a model is told to give, although calls in a former form have none.

    def __post_init__(self) -> None:
        self.name = self.name or self.function.__name__
        self.early = self.early or self.safe
        if self.prompt is None and not inspect.getdoc(self.function):
            raise DugnadError(f"The tool {self.name} needs a docstring: it is all the model knows of it.")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function that it was made of."""
        return self.function(*args, **kwargs)

    @cached_property
    def spec(self) -> ToolSpec:
        schema = self._arguments.model_json_schema()
        if self.prompt is not None:
            schema = _short(schema, schema.pop("$defs", {}), self._told[1])
        schema.pop("title", None)
        schema.update({"required": [*schema.get("required", ()), *self.required]} if self.required else {})
        for each in schema.get("properties", {}).values():
            each.pop("title", None)
        return ToolSpec(name=self.name, description=self._told[0], schema=schema)

    @cached_property
    def _told(self) -> tuple[str, Mapping[str, str]]:
        """What a model is told about the tool, and about each argument."""
        if self.prompt is not None:
            return tool_prompt(self.prompt)
        doc = inspect.getdoc(self.function) or ""
        return doc.split("\nArgs:")[0].strip(), _argument_texts(doc)

    @cached_property
    def _context_parameter(self) -> str | None:
        hints = get_type_hints(self.function)
        return next((name for name, hint in hints.items() if hint is Context), None)

    @cached_property
    def _arguments(self) -> Any:
        from pydantic import ConfigDict, Field, create_model

        hints = get_type_hints(self.function, include_extras=True)
        _, told = self._told
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if name == self._context_parameter or name in self.hidden:
                continue
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            # Under another name: pydantic's models have methods called json, copy and schema.
            fields[f"{_OWN}{name}"] = (hints.get(name, Any), Field(default, alias=name, description=told.get(name)))
        return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)

    def _shows(self, field: str) -> bool:
        """Whether an argument is in the schema. A built-in tool accepts former arguments, which have no description."""
        return self.prompt is None or field.removeprefix(_OWN) in self._told[1]

    def check(self, arguments: str) -> dict[str, Any]:
        """The arguments as the function takes them. BadCall says what is wrong with them."""
        from pydantic import ValidationError

        try:
            checked = self._arguments.model_validate_json(arguments.strip() or "{}")
        except ValidationError as wrong:
            raise BadCall(tell("results.not_called", tool=self.name, why=_what_is_wrong(wrong))) from None
        names = [each for each in type(checked).model_fields if self._shows(each) or each in checked.model_fields_set]
        found = {name.removeprefix(_OWN): getattr(checked, name) for name in names}
        for name, value in found.items():
            if isinstance(value, int) and abs(value) >= 2**63:
                too_large = tell("results.number_too_large", argument=name)
                raise BadCall(tell("results.not_called", tool=self.name, why=too_large))
        return found

    async def run(self, context: Context, arguments: dict[str, Any]) -> str | Ends:
        """Call the function. An exception of a user's tool becomes a ToolError."""
        if self._context_parameter:
            arguments = {**arguments, self._context_parameter: context}
        try:
            if inspect.iscoroutinefunction(self.function):
                answer = await self.function(**arguments)
            else:
                answer = await asyncio.to_thread(self.function, **arguments)
        except DugnadError:
            raise
        except Exception as error:
            if self.own:
                raise
            raise ToolError(f"{type(error).__name__}: {error}") from error
        return answer if isinstance(answer, Ends) else _as_text(answer)


def _as_text(answer: Any) -> str:
    if answer is None:
        return "Done."
    if isinstance(answer, str):
        return answer
    if isinstance(answer, int | float):
        return str(answer)
    from pydantic_core import to_json

    return to_json(answer, indent=1, fallback=str).decode()


def _short(
    schema: Mapping[str, Any], parts: Mapping[str, Any], told: Mapping[str, str], at: str = ""
) -> dict[str, Any]:
    """A schema of ours without what tells a model nothing: titles, null for what is left out, and references.
    What is wrong with a call is told when it is made.

    `told` has what is said of each argument; that of an entry of a list is named like tasks.title. An argument of which
    nothing is said is left out.
    """
    found = dict(schema)
    found.update(parts[found.pop("$ref").rpartition("/")[2]] if "$ref" in found else {})
    kinds = [each for each in found.pop("anyOf", ()) if each != {"type": "null"}]
    found.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})
    found = {key: value for key, value in found.items() if key not in _SAYS_NOTHING and (key != "default" or value)}
    if "items" in found:
        found["items"] = _short(found["items"], parts, told, f"{at}.")
    if "properties" in found:
        found["properties"] = {
            name: {**_short(each, parts, told, f"{at}{name}"), "description": told[f"{at}{name}"]}
            for name, each in found["properties"].items()
            if f"{at}{name}" in told
        }
    return found


def _what_is_wrong(wrong: Any) -> str:
    found = [
        f"{'.'.join(str(part) for part in each['loc']) or 'the arguments'}: {each['msg']}{_instead(each['input'])}"
        for each in wrong.errors(include_url=False, include_context=False)
    ]
    more = f" (and {len(found) - 5} more)" if len(found) > 5 else ""
    return "; ".join(found[:5]) + more + "."


def _instead(given: Any) -> str:
    return f", not {given!r}" if isinstance(given, str | int | float) and len(str(given)) <= 40 else ""


def _argument_texts(doc: str) -> dict[str, str]:
    """What the "Args:" block of a docstring says about each parameter, on one or more lines."""
    _, _, block = doc.partition("\nArgs:\n")
    told: dict[str, str] = {}
    name, indent = "", 0
    for line in block.splitlines():
        depth = len(line) - len(line.lstrip())
        if line.strip() and not depth:
            break  # Another section.
        if (found := _ARGUMENT.match(line)) and (not name or depth <= indent):
            name, indent = found[1], depth
            told[name] = found[2].strip()
        elif name and line.strip():
            told[name] += f" {line.strip()}"
    return told


@overload
def tool(function: Callable[..., Any]) -> Tool: ...
@overload
def tool(
    *, name: str = "", safe: bool = False, keyed: bool = False, seconds: float | None = None
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, *, name: str = "", safe: bool = False, keyed: bool = False,
    seconds: float | None = None,
) -> Tool | Callable[[Callable[..., Any]], Tool]:  # fmt: skip
    """Make a tool of a typed function with a docstring, sync or async.

    Mark it `safe` if it only reads, so that several calls of one reply may run at the same time, and `keyed` if it
    does its work once per `context.key`, so that it may be run again when a crash left its end unknown. `seconds` is
    how long a call may take, if that is not what `AgentLimits` says of all tools.
    """
    if function is not None:
        return Tool(function)
    return lambda given: Tool(given, name=name, safe=safe, keyed=keyed, seconds=lambda arguments: seconds)


def own_tool(
    *, name: str = "", safe: bool = False, keyed: bool = True, early: bool = False, former: bool = False
) -> Callable[[Callable[..., Any]], Tool]:
    """One of dugnad's own tools: the board knows their keys."""

    def made(given: Callable[..., Any]) -> Tool:
        prompt = None if former else given.__name__
        return Tool(given, name=name, safe=safe, keyed=keyed, own=True, early=early, former=former, prompt=prompt)

    return made
