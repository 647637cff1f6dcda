"""Commands in the background. They belong to the attempt that started them, and end with it.

When a job ends, its teammate gets a notice in its inbox, which it reads at the next turn. The notice is fenced and
keyed: an attempt that lost its task sends none, and none is sent twice.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from ...board import Board
from ...board.store.watch import Watch
from ...errors import BoardTrouble, DugnadError, ToolError
from ...prompts import tell
from ...settings import ShellLimits
from ...text import NOTHING, Told, clean, joined, one_line
from ...types import Claim
from ...workspace.sandbox.sandbox import CommandResult
from ..context import Context
from .outputs import TAIL_BYTES, Echo, Log, Outputs, last_line, not_kept, room_for
from .runner import Shell, echo_of, how_ended, now, time_of, within

_NOTICE_CHARS = 2_000
_TROUBLE_SECONDS = 1.0


@dataclass(eq=False, kw_only=True)
class BackgroundJob:
    name: str
    command: str
    seconds: float
    log: Log
    began: float
    running: asyncio.Task[None] | None = None
    ran: CommandResult | None = None
    trouble: str = ""  # Why it was not run, or was stopped.
    ended: bool = False
    mentioned: bool = False  # Its teammate wanted to end the task, and was told that the job still runs.
    heard: bytes = b""  # The end of its output.
    echo: Echo | None = None  # While a call waits for it.
    waiting: set[Watch] = field(default_factory=set)

    def hear(self, data: bytes) -> None:
        self.heard = (self.heard + data)[-TAIL_BYTES:]
        self.log.add(data)
        if self.echo is not None:
            self.echo.hear(data)

    @property
    def how(self) -> str:
        return self.trouble or (how_ended(self.ran) if self.ran else "running")


class Jobs:
    def __init__(self, shell: Shell, claim: Claim, board: Board, outputs: Outputs, limits: ShellLimits) -> None:
        self._shell, self._claim, self._board, self._outputs, self._limits = shell, claim, board, outputs, limits
        self._jobs: dict[str, BackgroundJob] = {}
        self._last = 0  # The number in the last name.
        self._closed = False

    async def start(self, command: str, seconds: float | None) -> str:
        running = self.running
        if self._closed:
            raise ToolError(tell("results.work_is_over"))
        if len(running) >= self._limits.jobs_max:
            raise ToolError(tell("results.too_many_jobs", count=len(running), jobs=", ".join(running)))
        await self._shell.sandbox.start()  # Without a sandbox this call fails; no notice comes later.
        self._last, log = self._outputs.log_of_job(self._last + 1)
        name = f"b{self._last}"
        job = self._jobs[name] = BackgroundJob(
            name=name, command=command, log=log, began=now(),
            seconds=within(self._limits.job_seconds if seconds is None else seconds, self._limits.job_seconds_max),
        )  # fmt: skip
        job.running = asyncio.create_task(self._run(job), name=f"dugnad job {name}")
        return tell("results.job_started", job=name, seconds=job.seconds)

    async def _run(self, job: BackgroundJob) -> None:
        try:
            job.ran = await self._shell.run(job.command, job.seconds, job.hear)
        except asyncio.CancelledError:
            job.trouble = job.trouble or "ended with the work on the task"
            raise
        except DugnadError as refused:
            job.trouble = f"not run: {refused}"
        finally:
            self._outputs.close(job.log, job.ran)
            job.ended = True
            told = bool(job.waiting)  # The call that waits for it tells.
            for each in job.waiting:
                each.wake("job")
        if not told:
            await self._notify(job)

    async def _notify(self, job: BackgroundJob) -> None:
        """Send it once, and only while this attempt holds the task: the board checks the key and the claim."""
        name, task = self._claim.teammate, self._claim.task.id
        key = f"job-{task}-{self._claim.epoch}-{job.name}"
        text = clean(self._ended_text(job, _NOTICE_CHARS))
        while True:
            try:
                await self._board.tell(name, name, text, kind="notice", claim=self._claim, key=key)
                return
            except BoardTrouble:
                await asyncio.sleep(_TROUBLE_SECONDS)
            except DugnadError:
                return  # Another attempt has the task, or the teammate is gone.

    def _ended_text(self, job: BackgroundJob, most: int) -> str:
        head = tell("results.job_ended", job=job.name, how=job.how, command=job.command)
        heard = job.heard.decode(errors="replace").rstrip()
        if len(heard) <= most and (job.ran is None or not job.ran.shortened):
            return f"{head}\n{heard}".rstrip() + not_kept(job.log)
        tail = heard[-most:].partition("\n")[2] or heard[-most:]  # From the beginning of a line, if there is one.
        return f"{head}\n{tell('results.job_tail', job=job.name)}\n{tail}" + not_kept(job.log)

    def _line(self, job: BackgroundJob) -> str:
        last = last_line(job.heard)
        after = f" after {now() - job.began:.0f} s" if not job.ended else ""
        return f"{job.name}: {job.how}{after} ({one_line(job.command, 80)}){f': {last}' if last else ''}"

    def _find(self, name: str) -> BackgroundJob:
        if job := self._jobs.get(name):
            return job
        if name.startswith("b") and self._outputs.has(name):
            raise ToolError(tell("results.job_of_before", job=name))
        there = ", ".join(self._jobs)
        raise ToolError(tell("results.no_job", job=name, jobs=there) if there else tell("results.no_job_yet", job=name))

    async def stop(self, name: str) -> str:
        job = self._find(name)
        if not job.ended and job.running is not None:
            job.trouble = "stopped"
            job.running.cancel()
            await asyncio.wait({job.running})
        return self._ended_text(job, _NOTICE_CHARS)

    async def wait(self, context: Context, name: str, seconds: float) -> str:
        """Wait until the job ends, a message comes, or the time is over."""
        job, me = self._find(name), self._claim.teammate
        until = now() + time_of(context, seconds)
        with self._board.watch([f"inbox:{me}"]) as watch:
            job.waiting.add(watch)
            job.echo = echo = echo_of(context, job.command, job.name)
            try:
                echo.hear(job.heard)
                while not job.ended:
                    unread = await self._board.has_unread(me)
                    # No await may come between this check and the answer: an end in between would not be told at all.
                    if not job.ended and (unread or now() >= until):
                        why = tell("results.job_message") if unread else None
                        runs = joined((why, tell("results.job_still_runs", job=job.name)), " ")
                        return f"{runs}\n{self._line(job)}"
                    if not job.ended:
                        await watch.wait(until - now())
            finally:
                job.waiting.discard(watch)
                echo.close()
                job.echo = None
        return self._ended_text(job, room_for(context.limits.tool_chars_max))

    def listed(self) -> str:
        return "\n".join(map(self._line, self._jobs.values())) or tell("results.no_jobs")

    @property
    def running(self) -> list[str]:
        return [job.name for job in self._jobs.values() if not job.ended]

    def unfinished(self) -> Told:
        running = [job for job in self._jobs.values() if not job.ended and not job.mentioned]
        if not running:
            return NOTHING
        for job in running:
            job.mentioned = True
        named = ", ".join(f"{job.name} ({one_line(job.command, 60)})" for job in running)
        return tell("results.still_runs", named=named, first=running[0].name)

    async def close(self) -> None:
        self._closed = True
        await self.end()

    async def end(self) -> None:
        """End every job. When this returns, nothing of them runs, and no notice comes any more."""
        running = [job.running for job in self._jobs.values() if job.running is not None]
        for each in running:
            each.cancel()
        for ended in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(ended, Exception):  # A bug of ours.
                raise ended
