"""A client that starts the server as real ones do, takes a task, and waits to be killed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any


def main() -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "dugnad", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip

    def ask(number: int, method: str, **params: Any) -> str:
        assert server.stdin is not None
        assert server.stdout is not None
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        return server.stdout.readline().decode().strip()

    ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "doomed"})
    print(ask(2, "tools/call", name="next_task", arguments={}), flush=True)
    print(server.pid, flush=True)
    time.sleep(600)


if __name__ == "__main__":
    main()
