"""One event is one line of pairs, whatever was put into it; and nothing is printed unless somebody asked."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest

from dugnad.logs import about, logger
from dugnad.logs.lines import AboutFilter, LineFormatter, traceback_text


def line(message: str, *given: object, level: int = logging.INFO, bug: BaseException | None = None) -> str:
    record = logging.LogRecord(
        "dugnad.team.worker", level, "worker.py", 1, message, given, (type(bug), bug, None) if bug else None
    )
    record.created = 1_772_331_247.311
    AboutFilter().filter(record)
    return LineFormatter().format(record)


def test_a_line_has_the_time_the_level_the_logger_and_the_event() -> None:
    assert line("settled as=%s ms=%d", "done", 12) == (
        "time=2026-03-01T02:14:07.311Z level=info logger=dugnad.team.worker event=settled as=done ms=12"
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("two words", '"two words"'), ('a "quoted" one', r'"a \"quoted\" one"'), ("", '""'),
        ("x level=error event=forged", '"x level=error event=forged"'),
        ("first\nsecond\r\nthird\u2028fourth", r'"first\nsecond\nthird\nfourth"'),
        ("\x1b[2J\x07", '"␛[2J␇"'), ("dugnad/main", "dugnad/main"), (None, "None"), (True, "True"),
    ],
)  # fmt: skip
def test_no_text_can_begin_a_line_or_a_pair(given: object, shown: str) -> None:
    assert line("told why=%s", given).partition(" why=")[2] == shown
    assert "\n" not in line("told why=%s", given)


def test_a_long_value_is_cut() -> None:
    assert len(line("told why=%s", "x" * 1_000_000)) < 1_200


async def test_a_line_says_what_it_is_about_also_in_tasks_that_were_started_from_there() -> None:
    async def inner() -> str:
        return line("checked")

    async def work() -> tuple[str, str]:
        about(task=12, attempt=3, teammate="ada")
        below = await asyncio.create_task(inner())
        about(task=None, attempt=None)
        return below, line("rested")

    about(board="0195")
    below, after = await asyncio.create_task(work())
    assert " board=0195 task=12 attempt=3 teammate=ada event=checked" in below
    assert " board=0195 teammate=ada event=rested" in after
    assert "teammate" not in line("elsewhere")


def test_a_traceback_is_one_value_on_one_line_without_the_values_of_variables() -> None:
    def fails(treasure: str) -> None:
        raise TypeError("half a loaf")

    try:
        fails("".join(["the ", "treasure"]))
    except TypeError as error:
        bug = error
    text = line("bug", level=logging.ERROR, bug=bug)
    assert "\n" not in text
    assert r"in fails\n" in text
    assert "TypeError: half a loaf" in text
    assert "the treasure" not in text
    assert len(traceback_text(ValueError("y" * 100_000)).encode()) <= 16 * 1024


def test_without_a_handler_nothing_is_printed() -> None:
    program = "from dugnad.logs import logger; logger('dugnad.x').error('lost why=%s', 1)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout + ran.stderr == ""
    assert logger("dugnad.team.worker").name == "dugnad.team.worker"
