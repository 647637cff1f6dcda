"""An event loop in virtual time: its clock jumps to the next timer, and a seed decides who runs first.

It knows processes: whatever a handle of the loop belongs to is told by its context. A process that was stopped for good
is never resumed: nothing of it runs again, no `finally` block either. One that is frozen comes back with everything it
had to do. Threads are refused; a wait that nothing can end is an error that says who waits where.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context, ContextVar
from typing import Any, TypeVar

from dugnad.errors import DugnadError

T = TypeVar("T")
_KEPT_MAX = 256  # Tasks of a process that are remembered before those that ended are forgotten.


class DeadWait(DugnadError):
    """Everybody waits, and nothing is under way that could wake anybody."""


class ThreadRefused(DugnadError):
    """A thread was asked for; in virtual time there is only the loop."""


class Process:
    """One operating-system process of the simulated world. All that runs in its context is part of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.steps_left: int | None = None  # Given: it stops for good before its next step but so many.
        self.on_death: Callable[[], None] = lambda: None
        self.context = Context()
        self.context.run(_PROCESS.set, self)
        self.held: list[asyncio.Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []

    def kill(self) -> None:
        """As kill -9 does: from one instruction to the next. Whoever calls this from inside must not return."""
        if self.alive:
            self.alive = False
            self.on_death()


_PROCESS: ContextVar[Process] = ContextVar("process")


async def never() -> Any:
    """Where a process stands that was stopped for good."""
    await asyncio.get_running_loop().create_future()


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs a simulated world to its end."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._elapsed = 0.0
        self._order = random.Random(seed)
        self.steps = 0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._elapsed

    def start(self, process: Process, work: Coroutine[Any, Any, T], name: str = "") -> asyncio.Task[T]:
        """Begin something in a process."""
        return process.context.run(lambda: self.create_task(work, name=name or None))

    def freeze(self, process: Process) -> None:
        process.frozen = True

    def thaw(self, process: Process) -> None:
        """Go on with everything that came due meanwhile."""
        process.frozen = False
        self._ready.extend(process.held)  # type: ignore[attr-defined]
        process.held.clear()

    def _run_once(self) -> None:
        """One round: jump to the next timer if nothing is to be done, then run what is, in the seed's order."""
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(timers)._scheduled = False
        if not ready:
            if not timers:
                raise DeadWait(f"Nothing can end these waits: {'; '.join(self._who_waits()) or 'nobody is there'}.")
            self._elapsed = max(self._elapsed, timers[0]._when)
        while timers and timers[0]._when <= self._elapsed:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            if timer._cancelled:
                self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            else:
                ready.append(timer)
        batch = list(ready)
        ready.clear()
        if len(batch) > 1:
            self._order.shuffle(batch)
        for handle in batch:
            if not handle._cancelled and self._may_run(handle):
                self.steps += 1
                handle._run()

    def _may_run(self, handle: Any) -> bool:
        process = handle._context.get(_PROCESS)
        if process is None:
            return True
        if process.alive and process.steps_left is not None:
            process.steps_left -= 1
            if process.steps_left < 0:
                process.kill()
        if not process.alive:
            return False
        if process.frozen:
            process.held.append(handle)
            return False
        return True

    def _who_waits(self) -> Iterator[str]:
        for task in sorted(asyncio.all_tasks(self), key=lambda each: each.get_name()):
            frames = task.get_stack(limit=1)
            where = f"{frames[0].f_code.co_filename.rpartition('/')[2]}:{frames[0].f_lineno}" if frames else "nowhere"
            yield f"{task.get_name()} at {where}"

    def _make_task(self, loop: Any, work: Any, **named: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **named)
        process = _PROCESS.get(None)
        if process is not None:  # What is abandoned must not be collected: that would run its `finally` blocks.
            process.tasks.append(task)
            if len(process.tasks) > _KEPT_MAX:
                process.tasks = [each for each in process.tasks if not each.done()]
        return task

    def bury(self, process: Process) -> None:
        """At the very end: let go of what was abandoned, now that nothing it does is seen by anybody."""
        for task in process.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        process.tasks.clear()
        process.held.clear()

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Nobody reads a log here: what a task failed with is in the task."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        raise ThreadRefused(f"{getattr(func, '__qualname__', func)} wants a thread; in virtual time there is none.")

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...
