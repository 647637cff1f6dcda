"""A small agent of our own that speaks the Agent Client Protocol, and does what a script says; also what it should not.

A script is a file `.script` in the tree, one JSON object a run, with `do`: a list of steps, each a list of a word and
its arguments. What it was told is appended to `.heard` as JSON lines, so that a test can look.
"""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dugnad.agent.external.command import AcpCommand

_BODY = r"""
import json, os, queue, re, sys, threading, time, urllib.error, urllib.request

heard = [json.loads(line) for line in open(".heard")] if os.path.exists(".heard") else []
runs = sum(each["what"] == "started" for each in heard)
place = ".script" if os.path.exists(".script") else os.path.join(os.path.dirname(__file__), "verdict.json")
script = json.load(open(place))
script = script[min(runs, len(script) - 1)]


def hear(what, **fields):
    with open(".heard", "a") as file:
        file.write(json.dumps({"what": what, **fields}) + "\n")


def send(**fields):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **fields}) + "\n")
    sys.stdout.flush()


def at(method):
    # Misbehave at a step of the handshake, or at the prompt.
    if script.get("die_at") == method:
        sys.stderr.write(script.get("last_words", "") + "\n")
        sys.exit(3)
    if script.get("hang_at") == method:
        open(".hangs", "w").write(str(os.getpid()))
        time.sleep(1_000)


class Cancelled(Exception):
    pass


cancelled, incoming, answers = threading.Event(), queue.Queue(), queue.Queue()


def read():
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "session/cancel":
            hear("cancel", session=message["params"]["sessionId"])
            cancelled.set()
        elif "method" in message:
            incoming.put(message)
        else:
            answers.put(message)
    incoming.put(None)


def ask(method, params):
    number = "its-" + str(time.monotonic())
    send(id=number, method=method, params=params)
    answer = answers.get()
    hear("answer", to=method, answer=answer.get("result"), error=answer.get("error"))
    return answer.get("result")


def update(named, **fields):
    send(method="session/update", params={"sessionId": "ses-1", "update": {"sessionUpdate": named, **fields}})


def wait(holds):
    while not holds():
        if cancelled.is_set() and not script.get("ignores_cancel"):
            raise Cancelled
        time.sleep(0.01)


mcp = {"number": 0}


def post(message, token=None, path=None):
    server = mcp["server"]
    headers = {each["name"]: each["value"] for each in server["headers"]}
    if token is not None:
        headers["Authorization"] = token
    headers |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    request = urllib.request.Request(server["url"] + (path or ""), data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        return refused.code, None


def call_tool(name, arguments, token=None):
    if not mcp["number"]:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
        hear("mcp", answer=post({"id": 0, "method": "initialize", "params": hello})[1])
        hear("mcp", answer=post({"method": "notifications/initialized"})[0])
        hear("mcp", answer=post({"id": 1, "method": "tools/list"})[1])
    mcp["number"] += 1
    asked = {"id": mcp["number"] + 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
    status, answer = post(asked, token)
    hear("tool", name=name, status=status, answer=(answer or {}).get("result"))


def do(word, *given):
    if word == "say":
        for piece in re.findall("(?s).{1,7}", given[0].replace("```dugnad\n", "```dugnad " + WORD[0] + "\n")):
            update("agent_message_chunk", content={"type": "text", "text": piece}, **(given[1] if given[1:] else {}))
    elif word == "update":
        update(given[0], **given[1])
    elif word == "tool":
        name, title, kind, status = given
        update("tool_call", toolCallId=name, title=title, kind=kind, status="pending", rawInput={"command": title})
        update("tool_call_update", toolCallId=name, status=status)
    elif word == "write":
        open(given[0], "w").write(given[1])
    elif word == "permission":
        kind, title, raw = given[:3]
        options = given[3] if given[3:] else ["allow_once", "allow_always", "reject_once"]
        call = {"toolCallId": "p-1", "title": title, "kind": kind, "rawInput": raw}
        named = [{"optionId": "its-" + each, "name": each, "kind": each} for each in options]
        ask("session/request_permission", {"sessionId": "ses-1", "toolCall": call, "options": named})
    elif word == "elicit":
        schema = {"type": "object", "properties": given[1]}
        fields = {"mode": "form", "requestedSchema": schema, **(given[2] if given[2:] else {})}
        ask("elicitation/create", {"sessionId": "ses-1", "message": given[0], **fields})
    elif word == "ask":
        ask(*given)
    elif word == "call":
        calling = threading.Thread(target=call_tool, args=given, daemon=True)
        calling.start()
        wait(lambda: not calling.is_alive())
    elif word == "at once":
        call_tool(*given[0][1:])  # It says hello first.
        threads = [threading.Thread(target=call_tool, args=each[1:]) for each in given]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    elif word == "post":
        hear("posted", status=post({"id": 77, "method": "ping"}, *given)[0])
    elif word == "raw":
        sys.stdout.write(given[0])
        sys.stdout.flush()
    elif word == "flood":
        line = json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": given[1]}) + "\n"
        for _ in range(given[0]):
            sys.stdout.write(line)
        sys.stdout.flush()
    elif word == "huge":
        sys.stdout.write("x" * given[0])
        sys.stdout.flush()
    elif word == "spawn":
        os.spawnlp(os.P_NOWAIT, "sleep", "sleep", given[0])
    elif word == "hang":
        open(".hangs", "w").write(str(os.getpid()))
        wait(lambda: False)
    elif word == "until":
        open(".waits", "w").close()
        wait(lambda: os.path.exists(given[0]))
    elif word == "die":
        sys.stderr.write(given[0] + "\n")
        sys.exit(4)
    else:
        raise ValueError(word)


WORD = [""]


def prompted(number, params):
    text = params["prompt"][0]["text"]
    found = re.search("```dugnad ([0-9a-f]{12,})", text)
    WORD[0] = found[1] if found else ""
    hear("prompt", session=params["sessionId"], text=text)
    at("session/prompt")
    reported = {"usage": script["usage"]} if "usage" in script else {}
    try:
        for step in script.get("do", []):
            do(*step)
        stop = script.get("stop", "end_turn")
    except Cancelled:
        stop = "cancelled"
    if script.get("refuses"):
        send(id=number, error=script["refuses"])
    else:
        send(id=number, result={"stopReason": stop, **reported})


def main():
    hear("started", environment=dict(os.environ), home=sorted(os.listdir(os.environ["HOME"])))
    threading.Thread(target=read, daemon=True).start()
    while (message := incoming.get()) is not None:
        method, number, params = message["method"], message.get("id"), message.get("params", {})
        if method != "session/prompt":
            hear(method, params=params)
            at(method)
        if method in script.get("errors", {}):
            send(id=number, error=script["errors"][method])
        elif method == "initialize":
            able = {"loadSession": True, "mcpCapabilities": {"http": script.get("http", True)}}
            send(id=number, result={"protocolVersion": script.get("version", 1), "agentCapabilities": able,
                 "authMethods": script.get("logins", []), "agentInfo": script.get("info", {"version": "1.2.3"})})
        elif method == "session/new":
            mcp["server"] = (params["mcpServers"] or [None])[0]
            send(id=number, result=script.get("new", {"sessionId": "ses-1"}))
        elif method == "session/prompt":
            prompted(number, params)
        else:
            send(id=number, result={})


main()
"""


def acp_agent(folder: Path, **fields: Any) -> AcpCommand:
    """The agent, with its program in the folder, outside the tree."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "agent"
    program.write_text("#!/usr/bin/env python3\n" + _BODY)
    program.chmod(program.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    prefixes = {Path(each) for each in (sys.prefix, sys.base_prefix) if not each.startswith("/usr")}
    fields = {"seconds": 120.0, **fields}
    return AcpCommand(name="acp:agent", run=(str(program),), readable=(programs, *prefixes), **fields)


def script(tree: Path, *runs: Mapping[str, Any]) -> None:
    """What it does, run by run; the last one ever after."""
    (tree / ".script").write_text(json.dumps(runs))


def verdict(folder: Path, **run: Any) -> None:
    """What it does in the run for a verdict, in which it has no tree."""
    (folder / "programs" / "verdict.json").write_text(json.dumps([run]))


def heard(tree: Path, what: str = "") -> list[dict[str, Any]]:
    """What it was told, of this kind."""
    path = tree / ".heard"
    found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [each for each in found if not what or each["what"] == what]
