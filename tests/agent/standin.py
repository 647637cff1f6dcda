"""Programs that stand in for other people's agents: they speak exactly their shapes, and do what a script says.

A script is a file `.script` in the tree, one JSON object a run: {"say": ..., "answer": ..., "write": {...}, ...}. What
they were given is appended to `.asked` as JSON lines, so that a test can look. What they hand back has the word that
the prompt names, unless the step says "forge": then it is as somebody would write it who did not see the prompt.
"""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dugnad.agent.external.command import PRESETS, ExternalCommand

_BODY = r"""
import json, os, re, signal, sys, time
kind = KIND
prompt = sys.stdin.read()
asked = [json.loads(line) for line in open(".asked")] if os.path.exists(".asked") else []
with open(".asked", "a") as file:
    file.write(json.dumps({"argv": sys.argv[1:], "prompt": prompt, "environment": dict(os.environ)}) + "\n")
place = ".script" if os.path.exists(".script") else os.path.join(os.path.dirname(__file__), "verdict.json")
steps = json.load(open(place))
step = steps[min(len(asked), len(steps) - 1)]
for path, content in step.get("write", {}).items():
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    open(path, "w").write(content)
word = re.search("```dugnad ([0-9a-f]{12,})", prompt)
word = word[1] if word and not step.get("forge") else ""
if "answer" in step:
    answer = step["answer"]
    if isinstance(answer, dict) and word:
        answer["word"] = word
    open(".dugnad-answer.json", "w").write(answer if isinstance(answer, str) else json.dumps(answer))
if step.get("link"):
    os.symlink(step["link"], ".dugnad-answer.json")
sys.stderr.write(step.get("complain", ""))
sys.stderr.flush()
class Asked(BaseException):
    pass


def asked_to_end(*_):
    raise Asked


if step.get("on_term") in ("report", "end"):
    signal.signal(signal.SIGTERM, asked_to_end)
elif step.get("on_term") == "ignore":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if step.get("hang"):
    try:
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", step["hang"])
        open(".hangs", "w").write(str(os.getpid()))
        time.sleep(float(step["hang"]))
    except Asked:
        if step["on_term"] == "report":
            step["error"] = "error_during_execution"
while step.get("until") and not os.path.exists(step["until"]):
    open(".waits", "w").close()
    time.sleep(0.02)
say, error = step.get("say", ""), step.get("error")
say = say.replace("```dugnad\n", "```dugnad " + word + "\n") if word else say
if "raw" in step:
    sys.stdout.write(step["raw"])
elif kind == "text":
    sys.stdout.write(say)
elif kind == "claude-json":
    result = {
        "type": "result", "subtype": error or "success", "is_error": bool(error or step.get("refused")),
        "duration_ms": 2549, "duration_api_ms": 4056, "num_turns": 3, "result": say, "session_id":
        "3c3f9cd4-0d5b-4bd5-a8ea-1a6b8b0f7a11", "total_cost_usd": step.get("cost", 0.0123), "usage": {
            "input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 300, "output_tokens": 40,
            "server_tool_use": {"web_search_requests": 0}, "service_tier": "standard"},
        "modelUsage": {}, "permission_denials": [], "uuid": "7b8b9d6e-5a7e-4d55-8a57-1d1f4f6b2c10"}
    if step.get("status"):
        result["api_error_status"] = step["status"]
    if error:
        del result["result"]
        result["errors"] = step.get("errors", [])
    sys.stdout.write(json.dumps(result) + "\n")
else:
    def event(**fields):
        sys.stdout.write(json.dumps(fields) + "\n")
    event(type="thread.started", thread_id="0199a213-81c0-7800-8aa1-bbab2a035a53")
    event(type="turn.started")
    event(type="item.started", item={"id": "item_1", "type": "command_execution", "command": "bash -lc ls",
          "aggregated_output": "", "exit_code": None, "status": "in_progress"})
    event(type="item.completed", item={"id": "item_0", "type": "reasoning", "text": "**Looking around**"})
    event(type="item.completed", item={"id": "item_2", "type": "agent_message", "text": "I begin."})
    if error:
        event(type="error", message=error)
        event(type="turn.failed", error={"message": error})
    else:
        event(type="item.completed", item={"id": "item_3", "type": "agent_message", "text": say})
        event(type="turn.completed", usage={"input_tokens": 24763, "cached_input_tokens": 24448, "output_tokens": 122})
sys.stdout.flush()
sys.exit(step.get("code", 1 if error or step.get("refused") else 0))
"""
_READS = {"claude": "claude-json", "codex": "codex-jsonl", "plain": "text"}


def stand_in(folder: Path, name: str = "claude", **fields: Any) -> ExternalCommand:
    """The command `name` with a program of its own in the folder, outside the tree."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / name
    reads: Any = _READS[name]
    program.write_text("#!/usr/bin/env python3\n" + _BODY.replace("KIND", repr(reads)))
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    preset = PRESETS.get(name, {})
    words = (str(program), *preset.get("run", ("",))[1:])
    # An interpreter outside the system's folders has to be shown as well.
    prefixes = {Path(each) for each in (sys.prefix, sys.base_prefix) if not each.startswith("/usr")}
    fields = {"dollars_option": preset.get("dollars_option", ""), "seconds": 60.0, **fields}
    return ExternalCommand(name=f"command:{name}", run=words, reads=reads, readable=(programs, *prefixes), **fields)


def script(tree: Path, *steps: Mapping[str, Any]) -> None:
    """What it does, run by run; the last step ever after."""
    (tree / ".script").write_text(json.dumps(steps))


def verdict(folder: Path, **step: Any) -> None:
    """What it does in the run for a verdict, in which it has no tree."""
    (folder / "programs" / "verdict.json").write_text(json.dumps([step]))


def asked(tree: Path) -> list[dict[str, Any]]:
    """What it was run with, run by run."""
    path = tree / ".asked"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def block(**fields: Any) -> str:
    return f"Here it is.\n\n```dugnad\n{json.dumps(fields)}\n```"


def prompts(tree: Path) -> Sequence[str]:
    return [each["prompt"] for each in asked(tree)]
