"""The outer loop of self-scheduling: claim, work, settle, until the board has nothing more for these agents.

A team with hosts is built on the same three calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..board import Board
from ..errors import ModelTrouble
from ..types import Claim, Outcome, Released
from .agent import Agent


async def drain(board: Board, agents: Sequence[Agent], *, host: str | None = None) -> list[tuple[Claim, Outcome]]:
    """Let the agents work until none of them finds anything to claim. Returns what they did, in order of ending."""
    own = host or await board.start_host("drain")
    for agent in agents:
        await board.seat(own, name=agent.teammate.name)
    worked: list[tuple[Claim, Outcome]] = []
    busy = 0

    async def one(agent: Agent) -> None:
        nonlocal busy
        while True:
            with board.watch_for(agent.teammate.name, agent.teammate.roles) as watch:
                busy += 1  # Before the claim: another agent that looks meanwhile must not leave.
                try:
                    claim = agent.claimed.pop(0) if agent.claimed else await board.claim(agent.teammate.name, own)
                    if claim is not None:
                        worked.append((claim, await _work(board, agent, claim)))
                        continue
                finally:
                    busy -= 1
                if not busy:
                    return
                await watch.wait(0.2)  # Another agent may make work for this one.

    running = [asyncio.ensure_future(one(agent)) for agent in agents]
    beat = asyncio.ensure_future(_beat(board, own))
    try:
        await asyncio.gather(*running)
    finally:
        for each in (beat, *running):
            each.cancel()
        await asyncio.gather(beat, *running, return_exceptions=True)
    if host is None:
        await board.stop_host(own)
    return worked


async def _work(board: Board, agent: Agent, claim: Claim) -> Outcome:
    try:
        outcome = await agent.work(claim)
    except ModelTrouble as trouble:  # The task is not to blame: give it back, then say so.
        await board.settle(claim, Released(str(trouble)))
        raise
    await board.settle(claim, outcome)
    return outcome


async def _beat(board: Board, host: str) -> None:
    while True:
        await asyncio.sleep(board.limits.lease_seconds / 3)
        await board.heartbeat(host)
