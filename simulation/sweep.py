"""Many seeds, on as many processes as asked, summed up in one object."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .mutants import Mutant, plant
from .plan import make_plan
from .promises import PROMISES
from .running import EXPECTED, run

__all__ = ["EXPECTED", "Caught", "SeedResult", "Sum", "hunt", "hunt_all", "run_seed", "sweep"]

SEEDS_ENOUGH = 1_000  # From here on, everything that is expected at times must have been seen.
_CHUNK = 8
_MUTANT_SEEDS = 4_000
MUTANT_CPU_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """One seed, as a process reports it to another."""

    seed: int
    hash: str
    faults: tuple[tuple[int, str], ...]  # The promise and what is wrong.
    sometimes: Counter[str]
    agent_seconds: float
    cpu_seconds: float


@dataclass
class Sum:
    """Of a sweep."""

    seeds: int = 0
    agent_seconds: float = 0.0
    cpu_seconds: float = 0.0
    sometimes: Counter[str] = field(default_factory=Counter)
    failed: list[SeedResult] = field(default_factory=list)
    hashes: dict[int, str] = field(default_factory=dict)

    def add(self, ran: SeedResult) -> None:
        self.seeds += 1
        self.agent_seconds += ran.agent_seconds
        self.cpu_seconds += ran.cpu_seconds
        self.sometimes.update(ran.sometimes)
        self.hashes[ran.seed] = ran.hash
        if ran.faults:
            self.failed.append(ran)

    def as_json(self) -> dict[str, Any]:
        per_cpu = self.agent_seconds / 3_600 / self.cpu_seconds if self.cpu_seconds else 0.0
        return {
            "seeds": self.seeds,
            "violations": sum(len(ran.faults) for ran in self.failed),
            "agent_hours_per_cpu_second": round(per_cpu, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "sometimes": dict(sorted(self.sometimes.items())),
            "never": [what for what in EXPECTED if not self.sometimes[what]],
            "failed": [
                {
                    "seed": ran.seed,
                    "promise": ran.faults[0][0],
                    "what": ran.faults[0][1],
                    "replay": f"python -m simulation --seed {ran.seed} --story",
                }
                for ran in sorted(self.failed, key=lambda each: each.seed)
            ],
        }


def run_seed(seed: int) -> SeedResult:
    began = time.process_time()
    outcome = run(make_plan(seed))
    return SeedResult(
        seed=seed,
        hash=outcome.hash,
        faults=tuple((fault.promise, str(fault)) for fault in outcome.faults),
        sometimes=outcome.sometimes,
        agent_seconds=outcome.agent_seconds,
        cpu_seconds=time.process_time() - began,
    )


def sweep(seeds: Iterable[int], *, processes: int, on_seed: Callable[[SeedResult], None] = lambda ran: None) -> Sum:
    total = Sum()
    for ran in _each(seeds, processes):
        total.add(ran)
        on_seed(ran)
    return total


def _each(seeds: Iterable[int], processes: int) -> Iterator[SeedResult]:
    if processes <= 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=_CHUNK)


# Planted bugs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Caught:
    mutant: Mutant
    promises: tuple[int, ...]  # That were seen broken.
    seed: int | None
    what: str
    cpu_seconds: float

    @property
    def caught(self) -> bool:
        """By its own name, and in time."""
        return self.mutant.promise in self.promises and self.cpu_seconds <= MUTANT_CPU_SECONDS

    def line(self) -> str:
        how = f"seed {self.seed}: {self.what}" if self.seed is not None else self.what
        verdict = "caught" if self.caught else "NOT CAUGHT"
        return f"{verdict}: {self.mutant.name} [{PROMISES[self.mutant.promise]}], {self.cpu_seconds:.1f} CPU s, {how}"


def hunt(mutant: Mutant, *, package: Path, first: int | None = None) -> Caught:
    """Run seeds in a child process that has the bug, until its promise is broken."""
    with tempfile.TemporaryDirectory(prefix="dugnad-mutant-") as made:
        plant(mutant, package, Path(made))
        start = mutant.seed if first is None else first
        ran = subprocess.run(
            [
                sys.executable, "-m", "simulation", "--seeds", f"{start}:{start + _MUTANT_SEEDS}", "--json",
                "--until-promise", str(mutant.promise), "--cpu-seconds", str(MUTANT_CPU_SECONDS),
            ],
            env={**os.environ, "PYTHONPATH": f"{made}:{Path(__file__).parents[1]}"}, capture_output=True, text=True,
            check=False, timeout=20 * MUTANT_CPU_SECONDS,
        )  # fmt: skip
    try:
        told = json.loads(ran.stdout)
    except ValueError:
        last = (ran.stderr.strip() or "it said nothing").splitlines()[-1]
        return Caught(mutant=mutant, promises=(), seed=None, what=f"the child failed: {last}", cpu_seconds=0.0)
    failed = told["failed"]
    hit = next((each for each in failed if each["promise"] == mutant.promise), None)
    return Caught(
        mutant=mutant,
        promises=tuple(each["promise"] for each in failed),
        seed=hit["seed"] if hit else None,
        what=hit["what"] if hit else f"{told['seeds']} seeds, and nothing but {[each['what'] for each in failed][:2]}",
        cpu_seconds=told["cpu_seconds"],
    )


def hunt_all(
    mutants: Iterable[Mutant], *, package: Path, processes: int, first: int | None = None,
    on_caught: Callable[[Caught], None] = lambda caught: None,
) -> list[Caught]:  # fmt: skip
    """Each in a child of its own; threads only wait for the children."""
    found = []
    with ThreadPoolExecutor(processes) as pool:
        for caught in pool.map(lambda mutant: hunt(mutant, package=package, first=first), mutants):
            found.append(caught)
            on_caught(caught)
    return found
