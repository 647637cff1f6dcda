"""A model for real programs that does what a play says: call this tool, write this file, run this command, say this.

A play is a generator of steps; it is sent the result of each one. The puppet keeps nothing: with every request it plays
from the beginning, with the results that the request holds. So a request that is repeated gets the same answer, and
many sessions can share one puppet. It uses the program's own tools, under the names that the program gives them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.models.provider_server import Answer, Seen, Usage

USAGE = Usage(input=1_000, output=50, cache_read=400)  # Of every answer, so that a test can add them up.
_SEARCH = "ToolSearch"  # Claude Code shows a tool of a server only after a search for it.
_WAIT = "functions.wait"  # Codex asks with this for the rest of a script.
_FOLDER = re.compile(r"(?:working directory: |<cwd>)(/[^\s<\\\"]+)", re.IGNORECASE)
_NOT_YET = "It is not there yet."  # Codex begins before its servers have started.
_RUNS_ON = re.compile(r"Script running with cell ID (\S+)")


@dataclass(frozen=True)
class Use:
    """A tool of an MCP server, by its own name."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Write:
    path: str  # Beneath the folder that the program works in, or absolute.
    content: str


@dataclass(frozen=True)
class Run:
    command: str


@dataclass(frozen=True)
class Say:
    """Ends the turn."""

    text: str


@dataclass(frozen=True)
class Many:
    """Several calls at the same time."""

    uses: tuple[Use, ...]


Step = Use | Many | Write | Run | Say
Play = Callable[["Heard"], Generator[Step, str, None]]


@dataclass(frozen=True)
class Heard:
    """What a request tells: what the program was asked, where it works, its tools, what they returned so far."""

    prompt: str
    folder: str
    tools: tuple[str, ...]
    results: tuple[str, ...]
    pending: str = ""  # The name that Codex gave to a script that still runs.

    @property
    def scripts(self) -> bool:
        """Whether the model writes JavaScript that calls the tools, as those of Codex do."""
        return "functions.exec" in self.tools

    def tool(self, name: str) -> str | None:
        """The program's name for a tool of a server."""
        return next((each for each in self.tools if re.search(rf"(^|[_.]){re.escape(name)}$", each)), None)


class Puppet:
    """What a `ProviderServer` asks for answers."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.answers = 0  # To requests of the play; not to those for a title.
        self.wrong = ""  # What the play did not expect. The program is then told to end.

    def __call__(self, seen: Seen) -> Answer:
        heard = hear(seen)
        if not heard.tools:
            return Answer(text="A title", usage=Usage(input=0, output=0))
        self.answers += 1
        if heard.pending:
            return _call(_WAIT, {"cell_id": heard.pending, "yield_time_ms": 60_000})
        steps = self._play(heard)
        try:
            step, left = next(steps), heard.results
            while left:
                count = len(step.uses) if isinstance(step, Many) and not heard.scripts else 1
                step, left = steps.send("\n".join(left[:count])), left[count:]
        except StopIteration:
            step = Say("Done.")
        except AssertionError as wrong:
            self.wrong = self.wrong or str(wrong)
            step = Say(f"This is not in the play: {wrong}")
        return answer(step, heard)


# Answers: one step in the program's own words.


def answer(step: Step, heard: Heard) -> Answer:
    if isinstance(step, Say):
        return Answer(text=step.text, usage=USAGE)
    if heard.scripts:
        return Answer(calls=(("exec!", _script(step), None),), usage=USAGE)
    if isinstance(step, Many):
        calls = [answer(each, heard).calls for each in step.uses]
        return Answer(calls=tuple(call for each in calls for call in each), usage=USAGE)
    if isinstance(step, Use):
        if (name := heard.tool(step.tool)) is not None:
            return _call(name, step.arguments)
        assert _SEARCH in heard.tools, f"there is no tool {step.tool} among {heard.tools}"
        return _call(_SEARCH, {"query": f"select:mcp__dugnad__{step.tool}", "max_results": 5})
    if isinstance(step, Run):
        name = _first(heard, "Bash", "bash", "exec_command")
        return _call(name, {"cmd": step.command} if name == "exec_command" else _described(step.command))
    name = _first(heard, "Write", "write", "exec_command")
    if name == "exec_command":
        return _call(name, {"cmd": f"apply_patch <<'END'\n{_patch(step)}\nEND"})
    path = step.path if step.path.startswith("/") else f"{heard.folder}/{step.path}"
    return _call(name, {"file_path" if name == "Write" else "filePath": path, "content": step.content})


def _script(step: Use | Many | Write | Run) -> str:
    if isinstance(step, Many):
        called = ", ".join(f"tools.mcp__dugnad__{each.tool}({json.dumps(each.arguments)})" for each in step.uses)
        return f"for (const said of await Promise.all([{called}])) text(said.content[0].text);"
    if isinstance(step, Use):
        name, pause = f"tools.mcp__dugnad__{step.tool}", "await new Promise(wake => setTimeout(wake, 500));"
        first = f"if (!{name}) {{ {pause} text({json.dumps(_NOT_YET)}); exit(); }}"
        said = f"const said = await {name}({json.dumps(step.arguments)});"
        return f"{first}\n{said}\ntext(said.content.map(each => each.text).join('\\n'));"
    if isinstance(step, Run):
        return f"const ran = await tools.exec_command({json.dumps({'cmd': step.command})});\ntext(ran.output);"
    return f"text(await tools.apply_patch({json.dumps(_patch(step))}));"


def _patch(step: Write) -> str:
    added = "\n".join(f"+{line}" for line in step.content.splitlines())
    return f"*** Begin Patch\n*** Add File: {step.path}\n{added}\n*** End Patch"


def _described(command: str) -> dict[str, str]:
    return {"command": command, "description": "As the play says."}


def _call(name: str, arguments: Mapping[str, Any]) -> Answer:
    return Answer(calls=((name, json.dumps(arguments), None),), usage=USAGE)


def _first(heard: Heard, *names: str) -> str:
    return next(name for name in names if name in heard.tools)


# Requests: three protocols, of which a puppet needs the same few things.


def hear(seen: Seen) -> Heard:
    asked: Mapping[str, Any] = seen.json
    if "input" in asked:
        return _of_responses(asked)
    if seen.path.partition("?")[0].endswith("/messages"):
        return _of_anthropic(asked)
    return _of_chat(asked)


def _of_anthropic(asked: Mapping[str, Any]) -> Heard:
    names, results, prompts = {}, [], []
    for message in asked["messages"]:
        blocks = message["content"]
        for block in [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks:
            if block["type"] == "tool_use":
                names[block["id"]] = block["name"]
            elif block["type"] == "tool_result" and names[block["tool_use_id"]] != _SEARCH:
                results.append(_text(block.get("content")))
            elif block["type"] == "text" and message["role"] == "user":
                prompts.append(block["text"])
    tools = [each["name"] for each in asked.get("tools", ())]
    return _heard(asked, prompts, tools, results)


def _of_chat(asked: Mapping[str, Any]) -> Heard:
    results = [_text(each["content"]) for each in asked["messages"] if each["role"] == "tool"]
    prompts = [_text(each["content"]) for each in asked["messages"] if each["role"] == "user"]
    tools = [each["function"]["name"] for each in asked.get("tools", ())]
    return _heard(asked, prompts, tools, results)


def _of_responses(asked: Mapping[str, Any]) -> Heard:
    tools, results, prompts, pending = _spaced(asked.get("tools", ())), [], [], ""
    for item in asked["input"]:
        if item.get("type") == "additional_tools":
            tools += _spaced(item["tools"])
        elif item.get("type") in ("function_call_output", "custom_tool_call_output"):
            said = item["output"]
            parts = [said] if isinstance(said, str) else [each.get("text", "") for each in said]
            runs_on = _RUNS_ON.search(parts[0])
            pending = runs_on[1] if runs_on else ""
            if not pending and _NOT_YET not in parts:
                results.append("\n".join(parts[1:] or parts))
        elif item.get("role") == "user":
            prompts.append(_text(item["content"]))
    return _heard(asked, prompts, tools, results, pending)


def _spaced(tools: Any) -> list[str]:
    """The names of tools, those of a namespace behind its own name."""
    names = []
    for each in tools:
        inner = each.get("tools", ())
        names += [f"{each['name']}.{tool['name']}" for tool in inner] if inner else [each.get("name", "")]
    return names


def _heard(
    asked: Mapping[str, Any], prompts: list[str], tools: list[str], results: list[str], pending: str = ""
) -> Heard:  # fmt: skip
    folder = _FOLDER.search(json.dumps(asked, ensure_ascii=False))
    where = folder[1] if folder else ""
    return Heard("\n".join(prompts), where, tuple(tools), tuple(results), pending)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(each.get("text", "")) for each in content or ())
