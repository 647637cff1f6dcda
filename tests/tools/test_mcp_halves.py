"""Half of a surrogate pair is no text. Said to an MCP server or by it, it costs a mark, and not the line."""

from __future__ import annotations

import pytest

from dugnad.models.port import ToolSpec
from dugnad.tools.mcp.offer import ServerTool
from dugnad.workspace.sandbox.sandbox import Sandbox
from tests.tools.mcp_stage import line_to, plain, running


@pytest.mark.parametrize(
    "arguments",
    [
        '{"text": "a\\ud800b"}',
        '{"text": "a", "\\udfff": ["\\ud800", {"x": "\\udc00"}]}',
        '{"text": "\\ud800\\ud800\\udc00"}',
    ],
)
async def test_half_of_a_surrogate_pair_in_a_call_does_not_end_the_line(sandbox: Sandbox, arguments: str) -> None:
    line = line_to(plain("good"), sandbox)
    spec = ToolSpec(name="mcp__tried__echo", description="x", schema={})
    tool = ServerTool(spec, lambda given: line.call("echo", given))
    assert "(1)" in str(await tool.run(None, tool.check(arguments)))  # type: ignore[arg-type]
    assert await line.call("echo", {"text": "still there"}) == "still there (2)"
    await line.close()


async def test_half_of_a_surrogate_pair_in_an_answer_does_not_end_the_line(sandbox: Sandbox) -> None:
    line = line_to(plain("half"), sandbox)
    for _ in range(3):
        assert await line.call("echo", {"text": "x"}) == "a?b"
    assert len(running("half")) == 1
    await line.close()
