"""The oracle is worth what it catches: every planted bug is, and the report names its promise."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import dugnad
from simulation.mutants import MUTANTS, Mutant, MutantOutdated, plant
from simulation.promises import PROMISES
from simulation.sweep import hunt
from tests.proof import sample

# Each breaks another promise, and is caught within a few seeds. `make test` runs these, `make proof` the others.
SOON_CAUGHT = (
    "no fence on settle", "put as ready with one open need", "dollars are not charged", "a message is never marked",
    "a lone event is not logged",
)  # fmt: skip
PACKAGE = Path(dugnad.__file__).parent
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "mutant", sample(MUTANTS, lambda mutant: mutant.name in SOON_CAUGHT), ids=lambda mutant: mutant.name
)
def test_a_planted_bug_is_caught_and_its_promise_is_named(mutant: Mutant) -> None:
    found = hunt(mutant, package=PACKAGE)
    assert found.caught, found.line()


def test_every_promise_has_at_least_two_planted_bugs() -> None:
    planted = Counter(mutant.promise for mutant in MUTANTS)
    assert len(MUTANTS) >= 30
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert all(planted[promise] >= 2 for promise in PROMISES if promise)


def test_a_planted_bug_that_no_longer_fits_the_code_is_an_error(tmp_path: Path) -> None:
    gone = Mutant("gone", 1, "board/verbs/fence.py", "words that stand nowhere", "")
    with pytest.raises(MutantOutdated, match=r"0 times in board/verbs/fence\.py"):
        plant(gone, PACKAGE, tmp_path)


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_a_failing_seed_is_told_as_a_small_story(tmp_path: Path) -> None:
    mutant = next(each for each in MUTANTS if each.name == "any end meets a need")
    plant(mutant, PACKAGE, tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "simulation", "--seed", str(mutant.seed), "--story"],
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stderr
    assert "promise 3 (order)" in ran.stdout
    assert f"python -m simulation --seed {mutant.seed} --story" in ran.stdout
    head = ran.stdout.splitlines()[0]
    assert "tasks: 2," in head or "tasks: 3," in head, head
    assert "Faults: none." in ran.stdout
    assert len(ran.stdout.splitlines()) < 80
