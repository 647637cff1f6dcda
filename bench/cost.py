"""Counts what a provider bills at full price: for one attempt of 40 turns, for a team of eight, and beside other loops.

    python bench/cost.py [--json] [--quick]

full_price_share        of all input tokens of an attempt of 40 turns with results of 3 kB, the share that the
                        provider's cache did not hold; by the window of the model and by the provider.
team_full_price_share   the same for eight teammates on one goal and one board, who take ten turns each, one by one.
first_request_tokens    of a worker and of a reviewer, in a project with one empty commit; of a peer, in its attempt.
                        All that is sent counts.
peers                   the same work in the loops of pydantic-ai and of the OpenAI Agents SDK, with the same tools:
                        those that a worker is offered in a git tree.
                        null: the loop cannot do it. Both let a conversation grow until the window is full. The SDK
                        speaks only OpenAI's protocol. If it is not installed, it is fetched into a folder for this run.

The providers are servers on loopback. They count four bytes as a token, and bill by the published rules: OpenAI finds
the longest beginning that it has seen, from 1,024 tokens on and in steps of 128. Anthropic keeps what ends at a
breakpoint, at most four of them, from 1,024 tokens on, and looks for it twenty blocks back. Nothing depends on time.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from dugnad import Agent, open_board, open_model, tool
from dugnad.models.port import Facts, ToolSpec
from dugnad.settings import AgentLimits
from dugnad.tools.built_in import BUILT_IN
from dugnad.tools.offered import offered
from dugnad.tools.tool import Tool
from dugnad.types import Done
from tests.models.provider_server import Answer, Fault, ProviderServer, Seen
from tests.tools.test_offered import named
from till import BYTES_PER_TOKEN, Till

MODELS = {"openai": "openai-chat:gpt-4o", "anthropic": "anthropic:claude-sonnet-5-5"}
WINDOWS = (200_000, 32_000)
TURNS, TEAM, TEAM_TURNS = 40, 8, 10
RESULT = "".join(f"{number:03}: a line of what a command printed\n" for number in range(72))  # 3 kB.
SDK = "openai-agents==0.24.0"
RULES = "You work on a task with the tools you have. Say what you do before each call."
TOOLS = offered(named(Path(tempfile.gettempdir()), without=("use_skill",)), review=False, plan=False, lead=False)
_AT = re.compile(rb'\\?"at\\?": ?(\d+)')


class Turns:
    """Lets teammates take their turns one after another, so that the same happens in every run."""

    def __init__(self, teammates: int) -> None:
        self._order, self._moved = list(range(teammates)), asyncio.Condition()

    async def next(self, number: int, *, leaves: bool = False) -> None:
        """It has taken a turn, and waits for the next one."""
        async with self._moved:
            self._order = [*self._order[1:], *(() if leaves else (number,))]
            self._moved.notify_all()
        if not leaves:
            await self.wait(number)

    async def wait(self, number: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self._order[0] == number)

    def tool(self, number: int) -> Tool:
        """What this teammate looks at things with."""

        @tool(safe=True)
        async def look(at: int) -> str:
            """Look at something.

            Args:
                at: Which one.
            """
            await self.next(number)
            return f"Number {at}.\n{RESULT}"

        return look

    async def all_of(self, work: Callable[[int], Awaitable[bool]]) -> bool:
        """Whether all of them came to their end."""

        async def one(number: int) -> bool:
            await self.wait(number)
            try:
                return await work(number)
            finally:
                await self.next(number, leaves=True)

        return all(await asyncio.gather(*map(one, list(self._order))))


def answering(till: Till, window: int, turns: int) -> Callable[[Seen], Answer | Fault]:
    """A model that looks at one thing after another, as the request says how far it has come, and then ends."""

    def answer(seen: Seen) -> Answer | Fault:
        if len(seen.body) // BYTES_PER_TOKEN + 4_096 > window:
            return Fault(overflow=True)
        usage = till.bill(seen)
        sent = [each.get("function", each)["name"] for each in seen.json.get("tools", ())]
        assert not sent or sorted(sent) == sorted(("look", *(each.name for each in TOOLS))), sent
        if b"Answer with plain text, at most" in seen.body[-2_000:] or not seen.json.get("tools"):
            return Answer(text="It was looked at, and nothing was found. " * 20, usage=usage)
        at = int((_AT.findall(seen.body) or [b"0"])[-1])
        if at < turns:
            say = f"Step {at + 1}: the last one looks fine, so the next one is due."
            return Answer(text=say, calls=(("look", json.dumps({"at": at + 1}), None),), usage=usage)
        return Answer(text="All of them are fine.", usage=usage)

    return answer


# Provider, its address, window, and the turns of the teammates: whether all came to their end.
Work = Callable[[str, str, int, Turns], Awaitable[bool]]


async def billed(work: Work, kind: str, window: int, turns: int, teammates: int = 1) -> Till:
    till = Till(kind)
    async with ProviderServer(answering(till, window, turns)) as server:
        url = server.url if kind == "anthropic" else f"{server.url}/v1"
        till.ended = await work(kind, url, window, Turns(teammates))
    return till


async def dugnad(kind: str, url: str, window: int, turns: Turns) -> bool:
    """Teammates on one goal, with a task each."""
    with tempfile.TemporaryDirectory() as folder:
        board = await open_board(f"sqlite:///{folder}/board.db")
        host, root = await board.start_host("bench"), await board.put("Look at all of it", role="nobody")
        built_in = {each.name for each in BUILT_IN}
        of_a_tree = [each for each in named(Path(folder)).values() if each.name not in built_in]

        async def work(number: int) -> bool:
            model = open_model(MODELS[kind], api_key="bench", base_url=url)
            model.facts = Facts(window_tokens=window)  # type: ignore[misc]
            try:
                teammate = await board.spawn(f"mate{number}", roles=["coder"])
                await board.seat(host, name=teammate.name)
                body = "Look at each one, and say what is wrong with it."
                task = await board.put(f"Look at part {number} of it", body=body, parent=root.id)
                claim = await board.claim(teammate.name, host, task=task.id)
                assert claim is not None
                limits = AgentLimits(turns_max=10 * TURNS)
                agent = Agent(board=board, teammate=teammate, model=model, tools=[turns.tool(number)], limits=limits)
                agent.equip(of_a_tree)
                return isinstance(await agent.work(claim), Done)
            finally:
                await model.close()

        try:
            return await turns.all_of(work)
        finally:
            await board.close()


def goal(number: int) -> str:
    return f"Look at part {number} of it: look at each one, and say what is wrong with it."


async def pydantic_ai(kind: str, url: str, window: int, turns: Turns) -> bool:
    from pydantic_ai import Agent as Loop
    from pydantic_ai import Tool as LoopTool
    from pydantic_ai.exceptions import AgentRunError
    from pydantic_ai.usage import UsageLimits

    if kind == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        model: Any = AnthropicModel("claude-sonnet-5-5", provider=AnthropicProvider(api_key="bench", base_url=url))
    else:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(api_key="bench", base_url=url))

    async def never(**given: Any) -> str:
        return ""

    def made(does: Any, spec: ToolSpec) -> Any:
        return LoopTool.from_schema(does, name=spec.name, description=spec.description, json_schema=dict(spec.schema))

    async def work(number: int) -> bool:
        look = turns.tool(number)

        async def sees(at: int) -> str:
            return str(await look(at))

        tools = [*(made(never, each.spec) for each in TOOLS), made(sees, look.spec)]
        loop = Loop(model, instructions=RULES, tools=tools, model_settings={"cache": True})
        try:
            await loop.run(goal(number), usage_limits=UsageLimits(request_limit=10 * TURNS))
        except AgentRunError:
            return False
        return True

    return await turns.all_of(work)


async def openai_agents(kind: str, url: str, window: int, turns: Turns) -> bool:
    import agents
    from openai import APIStatusError, AsyncOpenAI

    if kind != "openai":
        return False
    agents.set_tracing_disabled(True)

    async def never(context: Any, arguments: str) -> str:
        return ""

    def made(does: Any, spec: ToolSpec) -> Any:
        return agents.FunctionTool(spec.name, spec.description, dict(spec.schema), does, strict_json_schema=False)

    client = AsyncOpenAI(api_key="bench", base_url=url, max_retries=0)
    model = agents.OpenAIChatCompletionsModel("gpt-4o", client)

    async def work(number: int) -> bool:
        look = turns.tool(number)

        async def sees(context: Any, arguments: str) -> str:
            return str(await look(**json.loads(arguments)))

        tools = [*(made(never, each.spec) for each in TOOLS), made(sees, look.spec)]
        loop = agents.Agent(name="bench", instructions=RULES, model=model, tools=tools)
        try:
            await agents.Runner.run(loop, goal(number), max_turns=10 * TURNS)
        except APIStatusError:  # The window is full.
            return False
        return True

    try:
        return await turns.all_of(work)
    finally:
        await client.close()


PEERS: dict[str, Work] = {"pydantic_ai": pydantic_ai, "openai_agents": openai_agents}


async def succeeds(*command: str, cwd: Path, env: Mapping[str, str]) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, **pipes)
    said, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{said.decode()}")


async def first_requests() -> dict[str, int]:
    """Tokens of the first request of a worker and of a reviewer, as the command line sends them."""
    found: dict[str, int] = {}

    def answer(seen: Seen) -> Answer | Fault:
        body = seen.json
        offered = {each["function"]["name"] for each in body.get("tools", [])}
        found.setdefault("worker" if "write_file" in offered else "reviewer", len(seen.body) // BYTES_PER_TOKEN)
        if "write_file" not in offered:
            return Answer(calls=(("finish", '{"result": "Fine.", "outcome": "approved"}', None),))
        written = any(each["role"] == "tool" for each in body["messages"])
        done = ("finish", '{"result": "Written."}', None)
        return Answer(calls=(done if written else ("write_file", '{"path": "a.txt", "text": "a"}', None),))

    with tempfile.TemporaryDirectory() as folder:
        root, home = Path(folder, "project"), Path(folder, "home")
        for each in (root, home):
            each.mkdir()
        git = ["git", "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
        for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "Begin")):
            await succeeds(*git, *words, cwd=root, env=os.environ)
        async with ProviderServer(answer) as server:
            keep = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
            there = {"HOME": str(home), "DUGNAD_MODEL": "openai:bench", "DUGNAD_BASE_URL": f"{server.url}/v1"}
            for words in (
                ("spawn", "ann", "--role", "coder"), ("spawn", "rita", "--role", "reviewer"),
                ("add", "Write a file", "--role", "coder", "--review", "reviewer"), ("run",),
            ):  # fmt: skip
                await succeeds(sys.executable, "-m", "dugnad", *words, cwd=root, env=keep | there)
    return found


async def measured_of(work: Work, turns: int, team_turns: int) -> dict[str, Any]:
    alone = {window: {kind: await billed(work, kind, window, turns) for kind in MODELS} for window in WINDOWS}
    team = {kind: await billed(work, kind, WINDOWS[0], team_turns, TEAM) for kind in MODELS}
    return {
        "full_price_share": {
            str(window): {kind: each.share for kind, each in of.items()} for window, of in alone.items()
        },
        "team_full_price_share": {kind: each.share for kind, each in team.items()},
        "first_request_tokens": {"worker": alone[WINDOWS[0]]["openai"].first, "reviewer": None},
    }


async def measured(turns: int, team_turns: int) -> dict[str, Any]:
    ours = await measured_of(dugnad, turns, team_turns)
    peers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, work in PEERS.items():
            there = name != "openai_agents" or has_sdk(folder)
            peers[name] = await measured_of(work, turns, team_turns) if there else None
    return {**ours, "first_request_tokens": await first_requests(), "peers": peers}


def has_sdk(folder: str) -> bool:
    """Whether the OpenAI Agents SDK is there; if not, it is fetched. What is installed already comes first."""
    if importlib.util.find_spec("agents") is None:
        options = ("--quiet", "--disable-pip-version-check", "--target", folder)
        pip = [sys.executable, "-m", "pip", "install", *options, SDK]
        ran = subprocess.run(pip, capture_output=True, text=True, check=False)
        if ran.returncode:
            print(f"{SDK} could not be fetched, so it is not measured: {ran.stderr.strip()[-300:]}", file=sys.stderr)
            return False
        sys.path.remove(str(Path(__file__).parent))  # Or bench/mcp.py would be taken for a package of that name.
        sys.path.append(folder)
    return True


def shown(title: str, found: dict[str, Any]) -> None:
    print(title)
    for window, shares in found["full_price_share"].items():
        print(f"  at full price, window {window:>7}: {told(shares)}")
    print(f"  at full price, team of {TEAM}:       {told(found['team_full_price_share'])}")
    first = ", ".join(f"{who} {tokens:,}" for who, tokens in found["first_request_tokens"].items() if tokens)
    print(f"  tokens of a first request:     {first}")


def told(shares: dict[str, float | None]) -> str:
    return ", ".join(f"{kind} {'-' if share is None else f'{share:.1%}'}" for kind, share in shares.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="Half as many turns.")
    given = parser.parse_args()
    found = asyncio.run(measured(TURNS // 2, TEAM_TURNS // 2) if given.quick else measured(TURNS, TEAM_TURNS))
    if given.json:
        print(json.dumps(found))
        return
    shown("dugnad", found)
    for name, peer in found["peers"].items():
        if peer:
            shown(name, peer)
        else:
            print(f"{name} is not installed.")


if __name__ == "__main__":
    main()
