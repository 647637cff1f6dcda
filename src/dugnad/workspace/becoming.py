"""The child's side of starting a command: from a copy of the starter to the command itself, and nothing in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from .bounds import join_group, set_limits


def become(
    request: dict[str, Any],
    program: int,
    argv: Sequence[str],
    *,
    streams: Sequence[int],
    keep: Sequence[int],
    groups: Sequence[str],
) -> None:
    """Join the cgroups, take on the limits and the user, and turn into the command. Never returns.

    `streams` are its standard input, output and errors; `keep` are what bubblewrap reads and nobody else.
    """
    try:
        for group in groups:
            join_group(group)
        # First out of the way: one of them may have a number that another is to get.
        for number, stream in enumerate([os.dup(each) for each in streams]):
            os.dup2(stream, number)
        if request.get("user") is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        set_limits(request["limits"])
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if request["bare"]:
            os.setsid()
            os.chdir(request["tree"])
            keep = ()
        for fd in keep:
            os.set_inheritable(fd, True)
        os.execve(program, list(argv), request["environment"] if request["bare"] else {})
    except BaseException as error:
        os.write(2, f"dugnad: the command could not be started: {error}\n".encode())
    os._exit(126)
