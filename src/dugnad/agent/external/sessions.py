"""A run that is one session of the Agent Client Protocol. It reports what a command would have printed."""

from __future__ import annotations

import asyncio
import shlex
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version

from ...acp.session import AcpSession, SessionEnd, SessionPlan
from ...acp.updates import Happening
from ...errors import DugnadError
from ...models.port import Usage
from .asking import PermissionJudge
from .command import AcpCommand
from .live import LiveRun
from .reports import AgentReport, Ending, by_status
from .review import empty_folder
from .running import RunOrder, not_run
from .tool_server import ToolServer

_CUT = ("max_tokens", "max_turn_requests")


async def run_session(
    order: RunOrder, command: AcpCommand, live: LiveRun, judge: PermissionJudge, token: str
) -> tuple[AgentReport, float]:  # fmt: skip
    """Hold the session until it ends. Returns what it comes to, and how many seconds it took."""
    clock = asyncio.get_running_loop().time
    began = clock()
    stopped = asyncio.ensure_future(order.stop.said.wait())
    stopped.add_done_callback(lambda _: live.over.set())
    server = ToolServer(live, token=token)
    with ExitStack() as made:
        try:
            environment = order.environment
            if order.sandbox.bare:  # A sandbox has an empty home of its own.
                environment = _home(str(made.enter_context(empty_folder(order.sandbox)))) | environment
            piped = await order.sandbox.using(command.services).serving(server.serve).open(
                f"exec {shlex.join(command.run)}", tree=order.folder, environment=environment, hosts=command.hosts,
                readable=(*command.readable, *order.readable),
            )  # fmt: skip
        except DugnadError as refused:
            stopped.cancel()
            return not_run(refused)
        try:
            async with live.recording():
                session = AcpSession(
                    piped, _plan(order, command, server), allows=judge.allows, fills=judge.fills,
                    happened=lambda happening: _happened(happening, session, order, live),
                )  # fmt: skip
                end = await session.hold(live.over)
                for line in session.progress.open_calls():
                    live.happened(Happening(keep=f"{line} (did not end)"))
        finally:
            stopped.cancel()
            server.close()
            await piped.close()
    found = _report(end, session, live, order, command)
    if found.trouble and piped.refused:
        found = replace(found, trouble=f"{found.trouble} (network: {piped.refused[0]})")
    return found, clock() - began


def _home(folder: str) -> dict[str, str]:
    own = {"config": "XDG_CONFIG_HOME", "data": "XDG_DATA_HOME", "cache": "XDG_CACHE_HOME", "state": "XDG_STATE_HOME"}
    return {"HOME": folder, **{name: f"{folder}/.{word}" for word, name in own.items()}}


def _plan(order: RunOrder, command: AcpCommand, server: ToolServer) -> SessionPlan:
    return SessionPlan(
        folder=str(order.folder.resolve()), prompt=order.prompt, version=version("dugnad"), servers=server.told(),
        pinned=command.version, login=command.login, options=command.options, meta=command.meta,
        seconds=order.amount.milliseconds / 1000, start_seconds=command.start_seconds,
        silence_seconds=command.silence_seconds,
    )  # fmt: skip


def _happened(happening: Happening, session: AcpSession, order: RunOrder, live: LiveRun) -> None:
    live.happened(happening)
    spent, most = session.progress.microdollars, order.amount.microdollars
    if spent is not None and 0 < most < spent and not live.cut:
        live.cut = f"it was cancelled when it reached its limit of ${most / 1e6:.2f}"
        live.over.set()


def _report(end: SessionEnd, session: AcpSession, live: LiveRun, order: RunOrder, command: AcpCommand) -> AgentReport:
    found = AgentReport(
        ended=_ended(end), trouble=end.trouble, text=session.progress.text,
        usage=end.usage if command.counts_tokens else None, microdollars=session.progress.microdollars,
    )  # fmt: skip
    if not session.prompted:
        found = replace(found, microdollars=0, usage=Usage())
    # An agent that asked waits for us and not for its model; but opencode counts an answer when its calls have ended.
    if end.cut_seconds is not None and not (live.waits and command.counts_tokens):
        found = replace(found, cut_off=command.at_most_in(end.cut_seconds, order.amount))
    if live.waits:
        return replace(found, ended="asked", trouble="it asked", calls=tuple(live.waits))
    if end.ended == "stopped" and found.ended != "well":
        return replace(found, trouble=f"it stopped with {end.stop!r}")
    if end.ended == "cancelled":
        return replace(found, trouble=live.cut or "it was stopped")
    if end.ended == "login":
        how = f"name it as `login` under {command.table} in your config.toml, with its key in `environment`"
        return replace(found, trouble=f"it wants a login: {end.trouble}; {how}")
    return found


def _ended(end: SessionEnd) -> Ending:
    if end.ended == "stopped":
        return "well" if end.stop == "end_turn" else "cut" if end.stop in _CUT else "failed"
    if end.ended == "failed":
        return by_status(end.status)
    ended: dict[str, Ending] = {"cancelled": "cut", "late": "late", "login": "refused"}
    return ended[end.ended]
