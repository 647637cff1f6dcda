"""A host as a real process, with a teammate whose mind is a stand-in for somebody else's agent, until it is killed.

python external_worker.py '{"url": ..., "folder": ..., "tree": ..., "acp": ...}'
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from dugnad.agent.external.agent import ExternalAgent
from dugnad.board import open_board
from dugnad.settings import Limits
from dugnad.team import Host, RunPlan
from dugnad.workspace.sandbox.sandbox import Probe, Sandbox, find_bwrap
from tests.agent.acp_agent import acp_agent
from tests.agent.standin import stand_in


async def main(order: dict[str, str]) -> None:
    board = await open_board(order["url"], limits=Limits(lease_seconds=60, backoff_seconds=0.01))
    sandbox = Sandbox(
        Probe(level="strict", says="", bwrap=find_bwrap(os.environ["PATH"], outside=Path("/nonexistent")))
    )
    folder = Path(order["folder"])
    command = acp_agent(folder) if order.get("acp") else stand_in(folder)
    host = Host(
        board=board, plan=RunPlan(url="", knows_neighbours=False),
        mind=lambda member, may_act: ExternalAgent(
            board=board, teammate=member, command=command, sandbox=sandbox, tree=Path(order["tree"]),
            may_act=may_act,
        ),
    )  # fmt: skip
    await host.start()
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
