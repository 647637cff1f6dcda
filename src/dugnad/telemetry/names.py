"""The names of spans and attributes: the `gen_ai.*` conventions of OpenTelemetry as of version 1.41, and our own.

All of `gen_ai.*` is in development there, so it is written down here and nowhere else. Usage is on the call of a model
alone: sums on a step around it would be counted twice. What people and models say is left out unless `contents`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..agent.model_calls import PutDown
from ..logs import without_secrets
from ..logs.steps import Facts, Kind
from ..models.port import Message, Reply, Request, ToolResult, Usage
from ..text import plain
from ..types import Claim, Done, Failed, Outcome, Waiting

Value = str | int | bool | Sequence[str]
_CHARS_MAX = 1_000  # Of one text.
_CONTENT_CHARS_MAX = 64 * 1024  # Of what was said in one call; of more, the newest.
_OPERATION = {"attempt": "invoke_agent", "run": "invoke_agent", "chat": "chat", "tool": "execute_tool"}
_PROVIDERS = {
    "google": "gcp.gemini", "google-gla": "gcp.gemini", "google-vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock",
    "mistral": "mistral_ai", "azure": "azure.ai.openai", "grok": "x_ai",
}  # fmt: skip
_STOPS = {"end": "stop", "tools": "tool_calls", "length": "length", "refused": "content_filter"}


def span_name(kind: Kind, name: str) -> str:
    asked = name.partition(":")[2] or name if kind == "chat" else name
    return shown(f"{_OPERATION[kind]} {asked}" if kind in _OPERATION else kind)


def attributes(kind: Kind, name: str, facts: Facts, *, contents: bool) -> dict[str, Value]:
    """The attributes of a step that has ended."""
    found: dict[str, Any] = {"gen_ai.operation.name": _OPERATION.get(kind)}
    match kind:
        case "attempt":
            found |= _of_attempt(facts["claim"], facts.get("outcome"), contents)
            found["gen_ai.conversation.id"] = f"{facts['board']}.{facts['claim'].context or facts['claim'].task.id}"
        case "chat":
            found |= _of_chat(name, facts["request"], facts.get("reply"), contents)
        case "run":
            report = facts.get("report")
            found |= {"gen_ai.agent.name": name, "dugnad.run.ended": report and report.ended}
            found |= _usage((report and report.usage) or Usage())
        case "tool":
            found |= {"gen_ai.tool.name": name, "gen_ai.tool.type": "function"}
            if contents:
                result = facts.get("result")
                found |= {"gen_ai.tool.call.arguments": facts.get("arguments"), "gen_ai.tool.call.result": result}
        case "check":
            found["dugnad.check.red"] = facts.get("red")
        case "merge":
            found |= {"dugnad.merge.target": name, "dugnad.merge.as": facts.get("ended_as")}
    return {each: _safe(each, value) for each, value in found.items() if value is not None}


def trouble_of(kind: Kind, facts: Facts, raised: BaseException | None) -> str | None:
    """Why a step counts as failed, in one word; None: it does not. Putting a task down is no failure."""
    if raised is not None:
        return None if isinstance(raised, PutDown) else type(raised).__name__
    if isinstance(facts.get("outcome"), Failed):
        return "failed"
    if kind == "check" and facts.get("red"):
        return "red"
    if kind == "tool" and str(facts.get("result", "")).startswith("Error: "):
        return "tool_error"
    ended = facts["report"].ended if kind == "run" else "well"
    return None if ended in ("well", "asked") else str(ended)


def shown(text: object, most: int = _CHARS_MAX) -> str:
    """A text as it may leave this machine: without secrets, without control characters, and short."""
    return plain(without_secrets(text))[:most]


def _safe(name: str, value: Any) -> Value:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, list | tuple):
        return [shown(each) for each in value]
    content = name.endswith((".messages", ".arguments", ".result"))
    return shown(value, _CONTENT_CHARS_MAX if content else _CHARS_MAX)


def _of_attempt(claim: Claim, outcome: Outcome | None, contents: bool) -> dict[str, Any]:
    task = claim.task
    waits = outcome.on if isinstance(outcome, Waiting) else None
    return {
        "gen_ai.agent.name": claim.teammate, "dugnad.task.id": task.id, "dugnad.task.root": task.root,
        "dugnad.task.kind": task.kind, "dugnad.task.role": task.role,
        "dugnad.attempt.epoch": claim.epoch, "dugnad.attempt.number": claim.number,
        "dugnad.attempt.outcome": outcome and type(outcome).__name__.lower(), "dugnad.attempt.waits_for": waits,
        "dugnad.task.outcome": outcome.outcome if isinstance(outcome, Done) else None,
        "dugnad.task.title": task.title if contents else None,
    }  # fmt: skip


def _of_chat(name: str, request: Request, reply: Reply | None, contents: bool) -> dict[str, Any]:
    provider, _, model = name.rpartition(":")
    found: dict[str, Any] = {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider) or "_OTHER", "gen_ai.request.model": model,
        "gen_ai.request.max_tokens": request.output_tokens_max, "gen_ai.agent.name": request.teammate or None,
        "gen_ai.input.messages": _said(request.messages) if contents else None,
    }  # fmt: skip
    if reply is None:
        return found
    own = reply.model.rpartition(":")[2] or model
    answer = _said([reply]) if contents else None
    stop = [_STOPS[reply.stop]]
    more = {
        "gen_ai.response.model": own, "gen_ai.response.finish_reasons": stop, "gen_ai.output.messages": answer
    }  # fmt: skip
    return found | more | _usage(reply.usage)


def _usage(usage: Usage) -> dict[str, Any]:
    """As the provider counted; the input includes what was cached."""
    if not usage.tokens:
        return {}
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens or None,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens or None,
    }  # fmt: skip


def _said(messages: Sequence[Message]) -> str:
    """The newest messages, as JSON in the form of the conventions."""
    kept: list[dict[str, Any]] = []
    left = _CONTENT_CHARS_MAX // 2  # Escaping makes them longer.
    for each in reversed(messages):
        text = shown(each.text, left)
        left -= len(text)
        parts: list[dict[str, Any]] = [{"type": "text", "content": text}]
        role = "user"
        if isinstance(each, ToolResult):
            role, parts = "tool", [{"type": "tool_call_response", "id": each.call, "response": text}]
        elif isinstance(each, Reply):
            role = "assistant"
            for call in each.calls:
                arguments = shown(call.arguments, max(0, left))
                left -= len(arguments)
                parts.append({"type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments})
        kept.insert(0, {"role": role, "parts": parts})
        if left <= 0:
            break
    return json.dumps(kept, ensure_ascii=False)
