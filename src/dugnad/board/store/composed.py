"""PostgreSQL statements that are made of several named ones, so that they take one round trip."""

from __future__ import annotations

import re
from functools import cache

from .queries import load, load_setup
from .seam import STEPS


@cache
def together(names: tuple[str, ...]) -> str:
    """Several reading statements as one, whose columns are the rows of each as JSON."""
    columns, taken = [], 0
    for place, name in enumerate(names):
        query, first = load("postgres")[name], taken
        text = re.sub(r"\$(\d+)", lambda found, first=first: f"${int(found[1]) + first}", query.text)  # type: ignore[misc]
        columns.append(load_setup("postgres")["rows_of"].replace("STATEMENT", text) + f" AS rows_{place}")
        taken += len(query.parameters)
    return f"SELECT {', '.join(columns)}"


@cache
def script_procedure() -> str:
    """The procedure that runs a script, made of the statements of all steps. It lives as long as its connection."""
    setup, queries = load_setup("postgres"), load("postgres")
    steps = [setup["script_step"].replace("NAME", each).replace("STATEMENT", queries[each].text) for each in STEPS]
    text, last = ";\n".join([*steps, ""]).replace("$1", "this_given"), queries["append_events"]
    text = setup["script_procedure"].replace("STEPS", text).replace("APPEND_EVENTS", last.text)
    for place, name in enumerate(last.parameters, 1):
        text = text.replace(f"${place}", f"given_{name}")
    return text
