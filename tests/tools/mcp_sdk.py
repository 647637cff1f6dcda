"""A server made with the protocol's own SDK: `python mcp_sdk.py stdio`, or `... http PORT`, which says where."""

from __future__ import annotations

import asyncio
import socket
import sys

from mcp.server import MCPServer

server = MCPServer("sums", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("It is broken.")


async def over_http() -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", int(sys.argv[2])))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(server.streamable_http_app(), log_level="error")
    await uvicorn.Server(config).serve(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(over_http())
    else:
        server.run("stdio")
