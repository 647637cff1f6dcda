"""The child's side of starting a command: a copy of the helper becomes the command, with nothing in between."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from ..limits import join_group, set_limits


def become(
    request: dict[str, Any], program: int, argv: Sequence[str], *, streams: Sequence[int], keep: Sequence[int],
    groups: Sequence[str],
) -> None:  # fmt: skip
    """Join the cgroups, take on the limits and the user, and turn into the command. Never returns.

    `streams` are its standard input, output and errors. `keep` are files for bubblewrap alone; the first is where it
    writes what becomes of the command. Without bubblewrap, the reason goes there if the command could not be started.
    """
    try:
        for group in groups:
            join_group(group)
        # Copied first: one of them may have a number that another is to get.
        for number, stream in enumerate([os.dup(each) for each in streams]):
            os.dup2(stream, number)
        if request.get("user") is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        set_limits(request["limits"])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)  # A host in the background of a shell ignores some of them.
        if request["bare"]:
            os.setsid()
            os.chdir(request["tree"])
            os.execve(program, list(argv), request["environment"])
        for fd in keep:
            os.set_inheritable(fd, True)
        os.execve(program, list(argv), {})
    except BaseException as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        os.write(keep[0] if request["bare"] else 2, f"the command could not be started: {why}\n".encode())
    os._exit(126)
