"""`python -m simulation`: sweep seeds, tell one seed's story, or hunt the planted bugs."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import dugnad

from .mutants import MUTANTS
from .plan import make_plan
from .promises import PROMISES
from .running import run
from .sweep import SEEDS_ENOUGH, SeedResult, Sum, hunt_all, run_seed, sweep


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", metavar="FROM:TO", type=_range, help="run these worlds, the last one not included")
    what.add_argument("--seed", metavar="N", type=int, help="run one world")
    what.add_argument(
        "--mutants", nargs="?", const="", metavar="WORDS", help="plant every bug (with these words), and see it caught"
    )
    parser.add_argument("--story", action="store_true", help="with --seed: make a failing world small, and tell it")
    parser.add_argument("--json", action="store_true", help="print one object")
    parser.add_argument("--twice", action="store_true", help="with --seeds: run each again, and compare the hashes")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--first", type=int, help="with --mutants: the seed to begin with, instead of a known one")
    parser.add_argument("--until-promise", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--cpu-seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.mutants is not None:
        return _mutants(given)
    if given.seed is not None:
        return _one(given)
    if given.until_promise is not None:
        return _until(given)
    return _sweep(given)


def _range(text: str) -> range:
    start, colon, end = text.partition(":")
    try:
        found = range(int(start), int(end)) if colon else range(int(start))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds; write FROM:TO, like 0:100") from None
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is empty; write FROM:TO with the smaller number first")
    return found


def _sweep(given: argparse.Namespace) -> int:
    def told(ran: SeedResult) -> None:
        if ran.faults and not given.json:
            promise, what = ran.faults[0]
            print(f"seed {ran.seed} breaks promise {promise} ({PROMISES[promise]}): {what}")
            print(f"  python -m simulation --seed {ran.seed} --story")

    total = sweep(given.seeds, processes=given.processes, on_seed=told)
    report = total.as_json()
    unseen = report["never"] if total.seeds >= SEEDS_ENOUGH else []
    differing: list[int] = []
    if given.twice:
        again = sweep(given.seeds, processes=given.processes)
        differing = sorted(seed for seed in total.hashes if total.hashes[seed] != again.hashes[seed])
        report |= {"equal_hashes": total.seeds - len(differing), "differing": differing}
    if given.json:
        print(json.dumps(report))
    else:
        print(
            f"{report['seeds']} seeds, {report['violations']} violations, "
            f"{report['agent_hours_per_cpu_second']} agent-hours per CPU second, {report['cpu_seconds']} CPU seconds."
        )
        if differing:
            print(f"Not the same when run again: {', '.join(map(str, differing))}.")
        if unseen:
            print(f"Never seen, so this sweep shows less than it should: {', '.join(unseen)}.")
    return 1 if total.failed or differing or unseen else 0


def _until(given: argparse.Namespace) -> int:
    """For a child with a planted bug: stop at the first seed that breaks the promise."""
    total = Sum()
    for seed in given.seeds:
        total.add(run_seed(seed))
        promises = {promise for ran in total.failed for promise, _ in ran.faults}
        if given.until_promise in promises or total.cpu_seconds > given.cpu_seconds:
            break
    report = total.as_json()
    report["failed"] = [
        {"seed": ran.seed, "promise": promise, "what": what} for ran in total.failed for promise, what in ran.faults
    ]
    print(json.dumps(report))
    return 1 if total.failed else 0


def _one(given: argparse.Namespace) -> int:
    from .shrinking import small_story

    outcome = run(make_plan(given.seed))
    if given.json:
        faults = [{"promise": fault.promise, "what": str(fault)} for fault in outcome.faults]
        print(json.dumps({"seed": given.seed, "hash": outcome.hash, "violations": len(faults), "faults": faults}))
    elif given.story:
        print(small_story(make_plan(given.seed)))
    else:
        print(f"seed {given.seed}: {outcome.hash}, {len(outcome.faults)} violations in {outcome.seconds:.0f} seconds")
        for fault in outcome.faults:
            print(f"  {fault.named}")
    return 1 if outcome.faults else 0


def _mutants(given: argparse.Namespace) -> int:
    package = Path(dugnad.__file__).parent
    chosen = [each for each in MUTANTS if given.mutants in each.name]
    if not chosen:
        print(
            f"No planted bug has {given.mutants!r} in its name; they stand in simulation/mutants.py.", file=sys.stderr
        )
        return 2
    found = hunt_all(
        chosen, package=package, processes=given.processes, first=given.first,
        on_caught=lambda caught: None if given.json else print(caught.line(), flush=True),
    )  # fmt: skip
    caught = sum(each.caught for each in found)
    if given.json:
        missed = [each.mutant.name for each in found if not each.caught]
        print(json.dumps({"planted": len(found), "caught": caught, "missed": missed}))
    else:
        print(f"{len(found)} planted, {caught} caught.")
    return 0 if caught == len(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
