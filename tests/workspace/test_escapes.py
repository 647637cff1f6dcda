"""Every attempt to get out is stopped inside, works without the sandbox, and each option of the profile is needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dugnad.workspace.sandbox.profile import Confinement, Machine, strict
from dugnad.workspace.sandbox.sandbox import protect
from tests.workspace.attempts import ATTEMPTS, ORDINARY, Attempt, Stage, stage, without

AT_ONCE = 4
OPTIONS = sorted({(option, each.filtered) for each in ATTEMPTS for option in each.proves})
# What gives rather than takes; what test_sandbox.py shows by itself; and covers of what root could reach only with the
# capabilities it does not have: they stand for the day a kernel asks for less.
GIVES = (
    "--setenv",
    "--symlink",
    "--ro-bind-try",
    "--proc",
    "--dev",
    "--dir",
    "--chdir",
    "--size",
    "--bind",
    "--remount-ro",
)
SHOWN = ("--clearenv", "--die-with-parent", "--new-session")
SPARE = tuple(f"/proc/{name}" for name in ("kcore", "kmsg", "mtrr", "kpagecount", "kpageflags", "kpagecgroup", "fs"))
USERS = ["root", "an ordinary user"] if os.getuid() == 0 else ["an ordinary user"]


@pytest.fixture(params=USERS)
async def outside(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """Root tests both; an ordinary user cannot become root, and tests itself."""
    user = ORDINARY if os.getuid() == 0 and request.param != "root" else None
    async with stage(user) as made:
        yield made


async def those_that_get_out(outside: Stage, attempts: list[Attempt], *, bare: bool) -> set[str]:
    sandbox = outside.sandbox(bare=bare)
    places = asyncio.Semaphore(1 if bare else AT_ONCE)  # Bare, they would find one another's traces.

    async def one(number: int, attempt: Attempt) -> str | None:
        async with places:
            return attempt.name if await outside.gets_out(attempt, sandbox, number=f"{bare}-{number}") else None

    try:
        return {name for name in await asyncio.gather(*map(one, range(len(attempts)), attempts)) if name}
    finally:
        await sandbox.close()


async def test_every_attempt_is_stopped_and_works_without_the_sandbox(outside: Stage) -> None:
    attempts = [each for each in ATTEMPTS if outside.applies(each)]
    assert await those_that_get_out(outside, attempts, bare=False) == set()
    assert await those_that_get_out(outside, attempts, bare=True) == {each.name for each in attempts}
    assert len(attempts) >= (60 if outside.user is None and os.getuid() == 0 else 40)


def test_every_option_of_the_profile_is_shown_to_be_needed() -> None:
    tree = Path("/work/tree")
    policy, _ = protect(Confinement(tree=tree))
    machine = Machine(proc=frozenset(os.listdir("/proc")))
    shown = {option.format(tree=tree) for option, _ in OPTIONS}
    for words in strict(policy, machine).arguments:
        if words[0] in GIVES or words[0] in SHOWN or words[-1] in SPARE:
            continue
        assert {" ".join(words), " ".join(words[:2])} & shown or words[-1] == f"{tree}/.git", words


@pytest.mark.parametrize(("option", "filtered"), OPTIONS)
async def test_without_one_option_at_least_one_attempt_gets_out(option: str, filtered: bool) -> None:
    found: list[str] = []
    async with stage(None) as made:
        sandbox = made.sandbox(without(option, filtered=filtered))
        attempts = [e for e in ATTEMPTS if option in e.proves and e.filtered == filtered and made.applies(e)]
        if not attempts:
            pytest.skip(f"this user or this machine has nothing that {option} keeps away")
        for number, attempt in enumerate(attempts):
            if await made.gets_out(attempt, sandbox, number=str(number)):
                found.append(attempt.name)
        await sandbox.close()
    assert found, f"{option} could be taken out, and none of {[each.name for each in attempts]} would show it"
