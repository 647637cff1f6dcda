"""A model that says what a script tells it, by task and turn: for tests, demos and rehearsals.

A script is a mapping from a task's title ("*" is any other) to its steps, one per turn, or a function from the request
to a step. After the last step the model ends with plain text. In YAML:

    Write slugify():
      - say: First the tests.
        calls:
          - add_tasks: {tasks: [{title: Document slugify(), body: One paragraph.}]}
        usage: {input: 1200, output: 80}
        seconds: 2
      - odd: malformed                    # Or refusal, empty, cut: odd replies of real models.
      - faults: [rate_limited, timeout]   # Faults of the first tries of this turn.
        calls: [{finish: {result: slugify() works}}]
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ..errors import AnswerLost, BadInput, ContextOverflow, ModelTrouble, ModelUnavailable, RateLimited
from ..safe_open import read_named
from .port import Facts, Message, Price, Reply, Request, Stop, ToolCall, Usage

FAULTS: Mapping[str, tuple[type[ModelTrouble], str]] = {
    "rate_limited": (RateLimited, "too many requests"),
    "overloaded": (RateLimited, "too many requests"),
    "unavailable": (ModelUnavailable, "internal error"),
    "timeout": (AnswerLost, "no answer in time"),
    "overflow": (ContextOverflow, "the prompt is too long"),
}
ODD: Mapping[str, Mapping[str, Any]] = {
    "refusal": {"text": "I can't help with that.", "stop": "refused"},
    "empty": {},
    "malformed": {"calls": (ToolCall("call-0", "finish", '{"result": "half'),), "stop": "tools"},
    "cut": {"text": "And then I", "stop": "length"},
}
_SECONDS_MAX, _TOKENS_MAX, _DEPTH_MAX = 86_400, 10**12, 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    say: str = ""
    calls: tuple[tuple[str, Mapping[str, Any] | str], ...] = ()  # Arguments that are a text are sent unchanged.
    usage: Usage | None = None  # None: a quarter of the characters.
    seconds: float = 0.0
    faults: tuple[str, ...] = ()
    odd: str | None = None
    stop: Stop | None = None


Script = Mapping[str, Sequence[Step]] | Callable[[Request], Step]


class ScriptedModel:
    """Deterministic: the same request gives the same reply, in any process."""

    def __init__(
        self, script: Script, *, name: str = "scripted", price: Price | None = None,
        window_tokens: int | None = 200_000, retry_after: float | None = 0.05,
    ) -> None:  # fmt: skip
        # A person must never mistake a script for a model.
        self.name = name if name.startswith("scripted") else f"scripted:{name}"
        self.key = self.name
        self.facts = Facts(window_tokens=window_tokens, price=price)
        self._script = script
        self._retry_after = retry_after
        self._tries: dict[tuple[int, int], int] = {}
        self.asked: deque[Request] = deque(maxlen=1_000)  # For tests to look at.

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        content, _ = read_named(path, f"The script {path}", pipes=True)
        try:
            script = read_script(content.decode())
        except (BadInput, UnicodeDecodeError) as wrong:
            raise BadInput(f"{path}: {wrong}") from None
        return cls(script, name=f"scripted:{path.stem}")

    async def close(self) -> None:
        """There is nothing to close."""

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        step = self._step(request)
        place = (request.task, request.turn)
        tried = self._tries[place] = self._tries.get(place, 0) + 1
        if step.seconds:
            await asyncio.sleep(min(step.seconds, request.seconds_max))
            if step.seconds > request.seconds_max:
                raise AnswerLost(f"{self.name} did not answer within {request.seconds_max:g} seconds.")
        if tried <= len(step.faults):
            kind, words = FAULTS[step.faults[tried - 1]]
            more = {"seconds": self._retry_after} if kind is RateLimited else {}
            raise kind(f"{self.name}: {words}.", **more)
        if request.hears is not None:
            for text in ("", *re.findall(r"\S*\s*", step.say)[:-1]):  # In words, as a provider's words come.
                request.hears(text)
        if step.odd:
            return Reply(usage=_guess(request, Step()), model=self.name, **ODD[step.odd])
        calls = tuple(
            ToolCall(f"call-{request.turn}-{place}", name, given if isinstance(given, str) else json.dumps(given))
            for place, (name, given) in enumerate(step.calls)
        )
        usage = step.usage or _guess(request, step)
        stop = step.stop or ("tools" if calls else "end")
        return Reply(text=step.say, calls=calls, usage=usage, stop=stop, model=self.name)

    def _step(self, request: Request) -> Step:
        if callable(self._script):
            return self._script(request)
        steps = self._script.get(request.title) or self._script.get("*") or ()
        return steps[request.turn - 1] if request.turn <= len(steps) else Step(say=f"{request.title}: done.")


def _guess(request: Request, step: Step) -> Usage:
    """A quarter of the characters."""
    said = len(step.say) + sum(len(name) + len(str(given)) for name, given in step.calls)
    heard = len(request.system) + sum(map(_length, request.messages))
    return Usage(input_tokens=heard // 4, output_tokens=1 + said // 4)


def _length(message: Message) -> int:
    calls = message.calls if isinstance(message, Reply) else ()
    return len(message.text) + sum(len(call.arguments) for call in calls)


def read_script(text: str) -> dict[str, list[Step]]:
    """Read a script from YAML. Errors name their place in it."""
    import yaml

    try:
        if _depth(text) > _DEPTH_MAX:  # The time that YAML needs grows with the square of it.
            raise BadInput(f"The script is nested more than {_DEPTH_MAX} deep; write it flatter.")
        # Aliases can repeat aliases: a page of them could fill the memory.
        if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text, yaml.SafeLoader)):
            raise BadInput("The script repeats a part of itself by its name (*name); write that part out.")
        given = yaml.safe_load(text) or {}
        json.dumps(given)
    except (ValueError, TypeError, RecursionError) as error:  # A date, a number of a thousand digits, a deep nest.
        raise BadInput(f"The script may contain only text, numbers, lists and mappings: {error}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise BadInput(f"The script is not YAML{where}: {problem}.") from None
    if not isinstance(given, dict):
        raise BadInput("A script maps the titles of tasks to lists of steps.")
    script = {}
    for title, steps in given.items():
        if not isinstance(steps, list | None):
            raise BadInput(f"The script's {title!r} is not a list of steps.")
        named = enumerate(steps or (), start=1)
        script[str(title)] = [_step(f"The script's {title!r}, step {number}", step) for number, step in named]
    return script


def _depth(text: str) -> int:
    """How many brackets are open at once, at most."""
    now = most = 0
    for found in re.finditer(r"[\[{\]}]", text):
        now = now + 1 if found[0] in "[{" else max(0, now - 1)
        most = max(most, now)
    return most


def _step(where: str, given: Any) -> Step:
    known = Step.__dataclass_fields__
    if not isinstance(given, dict):
        raise BadInput(f"{where} is not a mapping; a step has {', '.join(known)}.")
    if unknown := given.keys() - known.keys():
        raise BadInput(f"{where} does not know {', '.join(sorted(map(str, unknown)))}; a step has {', '.join(known)}.")
    held = {key: value for key, value in given.items() if value is not None}
    faults, used, seconds = held.get("faults", []), held.get("usage", {}), held.get("seconds", 0)
    if not isinstance(faults, list):
        raise BadInput(f"{where} has faults {faults!r}; write a list.")
    for key, words in (("faults", tuple(FAULTS)), ("odd", tuple(ODD)), ("stop", get_args(Stop))):
        for word in faults if key == "faults" else [held[key]] if held.get(key) else []:
            if word not in words:
                raise BadInput(f"{where} has {key} {word!r}; there are {', '.join(words)}.")
    if not isinstance(used, dict) or used.keys() - {"input", "output"} or not all(map(_is_count, used.values())):
        raise BadInput(f"{where} has usage {used!r}; write {{input: TOKENS, output: TOKENS}}.")
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _SECONDS_MAX:
        raise BadInput(f"{where} has seconds {seconds!r}; write a number.")
    if not isinstance(calls := held.get("calls", []), list):
        raise BadInput(f"{where} has calls {calls!r}; write a list of {{TOOL: {{ARGUMENTS}}}}.")
    return Step(
        say=str(held.get("say", "")),
        calls=tuple(_call(where, call) for call in calls),
        usage=Usage(input_tokens=used.get("input", 0), output_tokens=used.get("output", 0)) if used else None,
        seconds=float(seconds),
        faults=tuple(faults),
        odd=held.get("odd"),
        stop=held.get("stop"),
    )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _TOKENS_MAX


def _call(where: str, call: Any) -> tuple[str, Mapping[str, Any] | str]:
    if isinstance(call, str):
        return call, {}
    if isinstance(call, dict) and len(call) == 1:
        ((name, arguments),) = call.items()
        if isinstance(arguments, dict | str | None):
            return str(name), {} if arguments is None else arguments
    raise BadInput(f"{where} has {call!r} among its calls; write TOOL, or {{TOOL: {{ARGUMENTS}}}}.")
