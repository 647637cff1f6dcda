"""A small process that starts commands, so that the large one never forks.

It is run as `python -m dugnad.workspace.sandbox.helper.server`. It is a child subreaper with nothing in its memory or
environment worth taking. It reads one JSON request a line and answers each with one JSON line. It keeps time and output
within bounds, kills bubblewrap and with it the whole pid namespace, reaps what is left, and removes what it made. It
ends when its input does, or when its parent is gone. It runs the arguments it gets, and knows no policies.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from ..limits import BoundedOutput, make_groups, remove_group, remove_stale_groups
from ..namespaces import listen_inside
from ..processes import below, children, drain, kill, processes_with
from ..reserved_paths import Hold, Placeholders
from .child import become

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 1.0  # Between two looks at whether the parent is still there.
_READ_BYTES = 65_536
_CHILD_PID = re.compile(rb'"child-pid": *(\d+)')
_EXIT_CODE = re.compile(rb'"exit-code": *(\d+)')


@dataclass(slots=True)
class StartedCommand:
    """One command under way."""

    id: int
    outer: int  # The pid that was forked: bubblewrap, or the bare shell.
    output_fd: int  # -1: its output goes to somebody else.
    status_fd: int  # Where bubblewrap writes the pid of its namespace's init, and the command's exit code.
    output: BoundedOutput
    began: float
    ends: float
    holds: list[Hold]
    groups: list[str]
    bare: bool
    to_stream: int  # How many more bytes of output are passed on as they come.
    places: Sequence[tuple[str, int]] = ()  # Addresses and ports of its own network, where we have to listen;
    gate_fd: int = -1  # and what keeps it from beginning until then.
    trouble: str = ""
    status: bytes = b""
    ended_as: int | None = None  # The wait status of the outer process.
    timed_out: bool = False


class HelperProcess:
    """The loop of the process."""

    def __init__(self, channel: int) -> None:
        self.channel = socket.socket(fileno=channel)
        self.channel.set_inheritable(False)
        self.parent = os.getppid()
        self.jobs: dict[int, StartedCommand] = {}
        self.placeholders = Placeholders()
        self.busy: list[str] = []  # Groups with processes that outlived their command; only bare commands leave them.
        self.pending = b""
        self.poll = select.epoll()
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def run(self) -> None:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # Wakes the loop; the work is done there.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        for fd in (0, self.wake_read):
            os.set_blocking(fd, False)
            self.poll.register(fd, select.EPOLLIN)
        remove_stale_groups()
        try:
            while self.step():
                pass
        finally:
            self.end()

    def step(self) -> bool:
        """One round: new requests, new output, ended processes, time that is up. False: nobody is left to serve."""
        now = time.monotonic()
        soonest = min((job.ends for job in self.jobs.values()), default=now + _LOOK_SECONDS)
        ready = dict(self.poll.poll(max(0.0, min(soonest - now, _LOOK_SECONDS))))
        if self.wake_read in ready:
            drain(self.wake_read)
        if 0 in ready and not self.take_requests():
            return False
        for job in list(self.jobs.values()):
            if job.output_fd in ready:
                self.hear(job)
            if job.gate_fd >= 0 and job.status_fd in ready:
                self.open_gate(job)
        self.reap()
        now = time.monotonic()
        for job in list(self.jobs.values()):
            if job.ended_as is not None:
                self.finish(job)
            elif now >= job.ends:
                job.timed_out, job.ends = True, now + _LOOK_SECONDS
                self.kill(job)
        return os.getppid() == self.parent

    # Requests.

    def take_requests(self) -> bool:
        try:
            data = os.read(0, 1 << 20)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if job := self.jobs.get(request.get("end")):
                self.kill(job)
            elif job := self.jobs.get(request.get("ask")):
                self.ask_to_end(job)
            elif "id" in request:
                try:
                    self.start(request)
                except OSError as error:
                    _say({"id": request["id"], "trouble": f"{error.strerror}: {error.filename or 'the command'}"})
        return True

    def start(self, request: dict[str, Any]) -> None:
        streams = self.take_files(request)
        output_read = gate_write = -1
        if len(streams) < 3:
            streams = streams or [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)]
            output_read, output_write = os.pipe2(os.O_CLOEXEC)
            streams += [output_write, output_write]
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        keep = [status_write]
        if request["listens"]:
            gate_read, gate_write = os.pipe2(os.O_CLOEXEC)
            keep.append(gate_read)
            request["options"] += ["--block-fd", str(gate_read)]
        holds: list[Hold] = []
        groups: list[str] = []
        try:
            for path, content in request["holds"]:
                self.placeholders.hold(path, content, request.get("user"))
                holds.append((path, content))
            groups = make_groups(f"dugnad-{os.getpid()}-{request['id']}", request["limits"])
            argv = list(request["argv"])
            if not request["bare"]:
                argv = [argv[0], *self.options(request, status_write, keep), *argv[1:]]
            program = os.open(request["program"], os.O_RDONLY | os.O_CLOEXEC)
            streams.append(program)
            pid = os.fork()
        except OSError:
            _close(*streams, *keep, output_read, status_read, gate_write)
            self.let_go(holds, groups)
            raise
        if pid == 0:
            become(request, program, argv, streams=streams[:3], keep=keep, groups=groups)
        _close(*streams, *keep)
        now = time.monotonic()
        ends = inf if request["seconds"] is None else now + request["seconds"]
        self.jobs[request["id"]] = StartedCommand(
            request["id"], pid, output_read, status_read, BoundedOutput(request["output_bytes_max"]), now, ends, holds,
            groups, request["bare"], request["streamed_bytes_max"], request["listens"], gate_write,
        )  # fmt: skip
        os.set_blocking(status_read, False)
        if output_read >= 0:
            os.set_blocking(output_read, False)
            self.poll.register(output_read, select.EPOLLIN)
        if gate_write >= 0:
            self.poll.register(status_read, select.EPOLLIN)

    def open_gate(self, job: StartedCommand) -> None:
        """Its namespaces are made: listen in its network, and let it begin."""
        job.status += drain(job.status_fd)
        self.poll_forget(job.status_fd)  # It is written once; if it is empty, the sandbox was not made.
        found = _CHILD_PID.search(job.status)
        if found and not listen_inside(int(found[1]), job.places, self.channel, b"%d" % job.id):
            job.trouble = "its network cannot be entered"
            self.kill(job)
        os.close(job.gate_fd)
        job.gate_fd = -1

    def take_files(self, request: dict[str, Any]) -> list[int]:
        """The open files that belong to this request: none, one to read, or all three streams."""
        if not request["given"]:
            return []
        _, files, _, _ = socket.recv_fds(self.channel, 64, request["given"], socket.MSG_CMSG_CLOEXEC)
        return files

    def options(self, request: dict[str, Any], status_fd: int, fds: list[int]) -> list[str]:
        """Put bubblewrap's options into a file: on its command line everybody on the machine could read them."""
        given = list(request["options"])
        for path, content in request["files"]:
            fds.append(_file_of(base64.b64decode(content)))
            # First of all, so that a later mount can only cover it, and the read-only root holds.
            given[:0] = ["--ro-bind-data", str(fds[-1]), path]
        if request["filter"]:
            fds.append(_file_of(base64.b64decode(request["filter"])))
            given += ["--seccomp", str(fds[-1])]
        given += ["--json-status-fd", str(status_fd)]
        fds.append(_file_of("\0".join(given).encode("utf-8", "surrogateescape") + b"\0"))
        return ["--args", str(fds[-1])]

    # Ends.

    def let_go(self, holds: list[Hold], groups: list[str]) -> None:
        self.placeholders.let_go(holds)
        self.busy += [group for group in groups if not remove_group(group)]

    def hear(self, job: StartedCommand) -> None:
        try:
            data = os.read(job.output_fd, _READ_BYTES)
        except BlockingIOError:
            return
        self.keep(job, data)
        if not data:
            self.poll.unregister(job.output_fd)

    def keep(self, job: StartedCommand, data: bytes) -> None:
        job.output.add(data)
        if told := data[: job.to_stream]:
            job.to_stream -= len(told)
            _say({"id": job.id, "said": base64.b64encode(told).decode()})

    def ask_to_end(self, job: StartedCommand) -> None:
        """Send SIGTERM to what the command's shell started, and not to the shell: its exit code is the command's."""
        if job.ended_as is None:
            for pid in below(job.outer, 0 if job.bare else 2):  # Bubblewrap, and the init of its namespace.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)

    def kill(self, job: StartedCommand) -> None:
        if job.ended_as is None:
            os.kill(job.outer, signal.SIGKILL)

    def reap(self) -> None:
        outers = {job.outer: job for job in self.jobs.values()}
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if job := outers.get(ended[0]):
                    job.ended_as = ended[1]

    def finish(self, job: StartedCommand) -> None:
        """Answer when nothing of the command lives; until then this is called again with every child that ends."""
        job.status += drain(job.status_fd)
        known = {each.outer for each in self.jobs.values() if each.ended_as is None}
        # Bubblewrap may end before the namespace it made; its init is then left to us, and takes all others with it.
        left = processes_with(3, job.outer) if job.bare else [pid for pid in children() if pid not in known]
        if left:
            for pid in left:
                kill(pid)
            job.ends = time.monotonic() + 0.02
            return
        if job.output_fd >= 0:
            self.keep(job, drain(job.output_fd))
            self.poll_forget(job.output_fd)
            os.close(job.output_fd)
        self.poll_forget(job.status_fd)
        _close(job.status_fd, job.gate_fd)
        self.let_go(job.holds, job.groups)
        del self.jobs[job.id]
        if job.bare and job.status:
            job.trouble = job.status.decode(errors="replace").strip()
        if job.trouble:
            _say({"id": job.id, "trouble": job.trouble})
            return
        assert job.ended_as is not None
        code: int | None = (ended := os.waitstatus_to_exitcode(job.ended_as))
        if not job.bare:
            found = _EXIT_CODE.search(job.status)
            # Without one the command was never started, unless bubblewrap was killed on the way, as memory ran out.
            code = int(found[1]) if found else 128 - ended if ended < 0 and b"child-pid" in job.status else None
        output = base64.b64encode(job.output.whole()).decode()
        _say(
            {
                "id": job.id, "code": code, "output": output, "timed_out": job.timed_out,
                "shortened": job.output.left_out > 0, "seconds": time.monotonic() - job.began,
            }
        )  # fmt: skip

    def poll_forget(self, fd: int) -> None:
        with suppress(FileNotFoundError):
            self.poll.unregister(fd)

    def end(self) -> None:
        """Leave nothing behind: commands, their namespaces, placeholders, cgroups."""
        for job in self.jobs.values():
            self.kill(job)
        for child in children():
            kill(child)
        for _ in range(500):
            try:
                if os.waitpid(-1, os.WNOHANG) == (0, 0):
                    for child in children():  # Also what only now became ours, its parent being gone.
                        kill(child)
                    time.sleep(0.01)
            except ChildProcessError:
                break
        for job in self.jobs.values():
            self.let_go(job.holds, job.groups)
        for group in self.busy:
            remove_group(group)


def _close(*fds: int) -> None:
    for fd in set(fds) - {-1}:
        os.close(fd)


def _file_of(content: bytes) -> int:
    fd = os.memfd_create("dugnad", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _say(answer: dict[str, Any]) -> None:
    data = json.dumps(answer).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    HelperProcess(int(sys.argv[1])).run()
