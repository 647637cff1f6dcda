"""The official SDK's client works one task in each era of the protocol."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from typing import Any

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client


async def main() -> None:
    server = StdioServerParameters(command=sys.executable, args=["-m", "dugnad", "mcp"], env=dict(os.environ))
    for mode in ("legacy", "auto"):
        async with Client(stdio_client(server), mode=mode) as client:
            assert len((await client.list_tools()).tools) == 10
            assert [each.name for each in (await client.list_prompts()).prompts] == ["work"]
            given: Any = (await client.call_tool("next_task", {})).content[0]
            found = re.search(r"task (\d+) with epoch (\d+)", given.text)
            assert found, given.text
            done = {"task": int(found[1]), "epoch": int(found[2]), "result": "Done."}
            ended: Any = (await client.call_tool("finish", done)).content[0]
            print(client.protocol_version, ended.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
