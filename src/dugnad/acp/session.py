"""One session with an agent: the handshake, one prompt, and its end. Every step is bounded in time.

A session is never loaded or resumed: what an agent kept of an earlier one cannot be checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

from ..models.port import Usage
from ..text import one_line
from .line import NO_METHOD, LineTrouble, RpcLine, RpcRefusal, TalkingCommand
from .requests import (
    CANCELLED,
    CANCELLED_FORM,
    DECLINED,
    ElicitationAsked,
    PermissionAsked,
    read_elicitation,
    read_permission,
)
from .updates import Happening, Progress, usage_of

VERSION = 1
CANCEL_SECONDS = 8.0  # For an agent that was cancelled to say so, with what it spent.
_LOGIN_WANTED = -32000
# We offer neither files nor terminals: the agent has its own, in the sandbox.
_CAPABILITIES = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False, "elicitation": {"form": {}}}

Ended = Literal[
    "stopped",  # It said why it stopped; see `stop`.
    "cancelled",  # We had enough.
    "late",  # It took too long, or was silent for too long.
    "login",  # It wants a login that it was not given.
    "failed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """What a session is told, and its bounds."""

    folder: str
    prompt: str
    version: str  # Of dugnad.
    pinned: str = ""  # The version that the agent must have; empty: any.
    servers: Sequence[Mapping[str, Any]] = ()  # MCP servers over HTTP.
    login: str = ""  # The way to log in, by the agent's own name for it.
    options: Mapping[str, str] = field(default_factory=dict)  # Of the session, such as its model.
    meta: Mapping[str, Any] = field(default_factory=dict)  # What this one agent understands besides.
    seconds: float = 1_800.0
    start_seconds: float = 60.0
    silence_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """How a session ended, and what it said and used; None: it does not say."""

    ended: Ended
    stop: str = ""
    trouble: str = ""
    status: int | None = None  # The HTTP status of its provider, if it reports one.
    usage: Usage | None = None
    # How long its model may have been at an answer that was cut off, which no agent counts; None: none was cut off.
    cut_seconds: float | None = None


class SessionTrouble(Exception):
    """The session cannot be held; the text says why."""


class AcpSession:
    """`allows` decides about permissions, and `fills` about forms; None: the turn is cancelled, for a person must be
    asked first. `happened` is told what goes on."""

    def __init__(
        self, piped: TalkingCommand, plan: SessionPlan, *, allows: Callable[[PermissionAsked], bool | None],
        fills: Callable[[ElicitationAsked], Mapping[str, Any] | None], happened: Callable[[Happening], None],
    ) -> None:  # fmt: skip
        self.progress = Progress()
        self._plan, self._allows, self._fills, self._happened = plan, allows, fills, happened
        self._line = RpcLine(piped, asked=self._answer, told=self._hear)
        self._session = ""
        self._step = ""
        self._ways: Any = None
        self._cancelled = False
        self._asks_since = 0.0  # Since then it may wait for its model.
        self.prompted = False  # Before that it cannot have cost anything.

    async def hold(self, enough: asyncio.Event) -> SessionEnd:
        """From the handshake to the end of the prompt. When there is enough, it is cancelled."""
        listening = asyncio.create_task(self._line.listen())
        try:
            beginning = await self._within(self._begin(), self._plan.start_seconds, enough, silence=inf)
            if not isinstance(beginning, str):
                return await self._work(enough)
            if beginning == "enough":
                return SessionEnd(ended="cancelled")
            return SessionEnd(ended="late", trouble=f"it did not answer {self._step} in time")
        except (LineTrouble, SessionTrouble) as trouble:
            return SessionEnd(ended="failed", trouble=f"{trouble}{self._at()}", cut_seconds=self._cut())
        except RpcRefusal as refusal:
            return self._refused(refusal)
        finally:
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening

    def _cut(self) -> float:
        """In a call of its own it hardly waits for its model, but it may have sent the next request just now."""
        return 0.0 if self.progress.open_calls() else asyncio.get_running_loop().time() - self._asks_since

    def _at(self) -> str:
        return f" (at {self._step})" if self._step and self._step != "session/prompt" else ""

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._step = method
        return await self._line.ask(method, params)

    async def _begin(self) -> None:
        plan = self._plan
        client = {"name": "dugnad", "version": plan.version}
        hello = {"protocolVersion": VERSION, "clientCapabilities": _CAPABILITIES, "clientInfo": client}
        found = await self._ask("initialize", hello)
        if (version := found.get("protocolVersion")) != VERSION:
            raise SessionTrouble(
                f"it speaks version {one_line(version, 20)} of the protocol, and dugnad speaks version {VERSION}; use "
                f"a version of it that speaks {VERSION}"
            )
        about = found.get("agentInfo")
        own = about.get("version") if isinstance(about, dict) else None
        if plan.pinned and own != plan.pinned:
            raise SessionTrouble(
                f"it has the version {one_line(own or 'that it does not tell', 60)}, and your config.toml asks for "
                f"{plan.pinned}; install that, or change `version`"
            )
        able, self._ways = found.get("agentCapabilities"), found.get("authMethods")
        servers = able.get("mcpCapabilities") if isinstance(able, dict) else None
        if plan.servers and not (isinstance(servers, dict) and servers.get("http") is True):
            raise SessionTrouble(
                "it takes no MCP server over HTTP, so it cannot be given the tools of the board; use another version "
                "of it, or run it as a command"
            )
        if plan.login:
            await self._ask("authenticate", {"methodId": plan.login})
        meta = {"_meta": dict(plan.meta)} if plan.meta else {}
        made = await self._ask("session/new", {"cwd": plan.folder, "mcpServers": [*plan.servers], **meta})
        if not isinstance(session := made.get("sessionId"), str) or not session:
            raise SessionTrouble("it made a session without an id")
        self._session = session
        for name, value in plan.options.items():
            await self._ask("session/set_config_option", {"sessionId": session, "configId": name, "value": value})

    async def _work(self, enough: asyncio.Event) -> SessionEnd:
        prompt = {"sessionId": self._session, "prompt": [{"type": "text", "text": self._plan.prompt}]}
        self.prompted, self._asks_since = True, asyncio.get_running_loop().time()
        asked = asyncio.create_task(self._ask("session/prompt", prompt))
        cut = None
        try:
            why = await self._within(asked, self._plan.seconds, enough, silence=self._plan.silence_seconds)
            if isinstance(why, str):
                cut = self._cut()
                self._cancel()
                # It is killed only afterwards: until then it can say what it spent.
                await asyncio.wait({asked}, timeout=CANCEL_SECONDS)
            answer = asked.result() if asked.done() and asked.exception() is None else None
        finally:
            asked.cancel()
        stop = one_line(answer.get("stopReason"), 60) if answer else ""
        usage, cut = usage_of(answer.get("usage")) if answer else None, cut if stop in ("", "cancelled") else None
        if not isinstance(why, str):
            return SessionEnd(ended="stopped", stop=stop, usage=usage, cut_seconds=cut)
        if why == "enough":
            return SessionEnd(ended="cancelled", usage=usage, cut_seconds=cut)
        late = f"after {self._plan.seconds:.0f} seconds, which is its limit"
        silent = f"because it said nothing for {self._plan.silence_seconds:.0f} seconds"
        trouble = f"it was cancelled {late if why == 'late' else silent}"
        return SessionEnd(ended="late", trouble=trouble, usage=usage, cut_seconds=cut)

    def _cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._line.tell("session/cancel", {"sessionId": self._session})

    async def _within(
        self, work: Coroutine[Any, Any, Any] | asyncio.Task[Any], seconds: float, enough: asyncio.Event, *,
        silence: float,
    ) -> Any:  # fmt: skip
        """What the work gives, or the word for what came before its end. A given task is left running then."""
        clock = asyncio.get_running_loop().time
        ends = clock() + seconds
        own = not isinstance(work, asyncio.Task)
        task = asyncio.ensure_future(work)
        said = asyncio.ensure_future(enough.wait())
        try:
            while True:
                left = min(ends, self._line.heard_at + silence) - clock()
                await asyncio.wait({task, said}, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    return task.result()
                if said.done():
                    return "enough"
                if clock() >= ends:
                    return "late"
                if clock() >= self._line.heard_at + silence:
                    return "silent"
        finally:
            said.cancel()
            if own:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _refused(self, refusal: RpcRefusal) -> SessionEnd:
        """Its words decide nothing; the code does, and the status that it reports of its provider."""
        if refusal.code == _LOGIN_WANTED or self._step == "authenticate":
            ways = [each.get("id") for each in self._ways if isinstance(each, dict)] if self._ways else []
            known = f"; it knows: {one_line(', '.join(map(str, ways)), 200)}" if ways else ""
            return SessionEnd(ended="login", trouble=f"{refusal}{known}")
        data = refusal.data if isinstance(refusal.data, dict) else {}
        names = ("status", "statusCode", "httpStatusCode")
        status = next((data[each] for each in names if isinstance(data.get(each), int)), None)
        return SessionEnd(ended="failed", trouble=f"{refusal}{self._at()}", status=status)

    # What the agent says and asks.

    def _hear(self, method: str, params: Any) -> None:
        if method != "session/update" or not isinstance(params, dict) or params.get("sessionId") != self._session:
            return  # Of a session that is not ours, or an extension.
        happening = self.progress.apply(params.get("update"))
        if happening.keep:  # A call of its own has ended.
            self._asks_since = asyncio.get_running_loop().time()
        self._happened(happening)

    def _answer(self, method: str, params: Any) -> Any:
        if method == "session/request_permission":
            permission = read_permission(params, self.progress)
            if (allowed := self._allows(permission)) is not None:
                return permission.answer(allowed)
            self._cancel()  # First: an agent that gets its answer asks its model again.
            return CANCELLED
        if method == "elicitation/create":
            form = read_elicitation(params)
            if (filled := DECLINED if form is None else self._fills(form)) is not None:
                return filled
            self._cancel()
            return CANCELLED_FORM
        raise RpcRefusal(NO_METHOD, f"dugnad does not offer {one_line(method, 60)}.")
