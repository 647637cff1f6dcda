"""Only a task that was put with the network has it: for its teammate's commands, and for its check."""

from __future__ import annotations

from pathlib import Path

import pytest

from dugnad.models import ScriptedModel
from dugnad.settings import Limits
from dugnad.team.workspaces.workspace import Workshop, shared
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.agent.stage_agent import all_told
from tests.conftest import Opener
from tests.team.stage_team import hosting, until_ended
from tests.team.stage_trees import OWN, PATH, finish, shell
from tests.workspace.attempts import WORD
from tests.workspace.outside import outside
from tests.workspace.running import strict_here


@pytest.mark.parametrize("network", [True, False])
@pytest.mark.parametrize("checked", [True, False])
async def test_a_task_reaches_the_hosts_that_are_allowed_only_if_it_asks_for_the_network(
    opener: Opener, tmp_path: Path, network: bool, checked: bool
) -> None:
    board = await opener(limits=Limits(attempts_max=1))
    await board.spawn("alice")
    async with outside() as world:
        host = f"files.example.org:{world.secret_port}"
        fetch = f"curl -sSp --http0.9 http://{host}/"
        sandbox = Sandbox(strict_here(), readable=OWN, network=world.network())
        kept = tmp_path / ".dugnad" / "output"
        shop = Workshop(board=board, sandbox=sandbox, outputs=kept, environment={"PATH": PATH}, hosts=(host,))
        model = ScriptedModel({"Fetch it": [finish()] if checked else [shell(fetch), finish()]})
        check = f"{fetch} | grep -q {WORD}" if checked else None
        try:
            async with hosting(board, model, workspaces=shared(shop, tmp_path), limits={"check_rounds_max": 0}):
                (task,) = await until_ended(board, await board.put("Fetch it", check=check, network=network))
        finally:
            await sandbox.close()
    if checked:
        assert task.state == ("done" if network else "failed")
    else:
        assert (WORD in all_told(model.asked[-1])) == network
    assert bool(world.passages) == network
