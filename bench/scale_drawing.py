"""Draws what bench/scale.py measured: tables as Markdown, and a picture with two logarithmic axes as SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
COLORS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df")
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 420, 70, 50, 20, 200
Line = Sequence[tuple[float, float]]
Found = Mapping[str, Any]
PLAIN = {
    "tasks_per_second": "tasks a second", "claim_ms_p50": "claim p50, ms", "claim_ms_p99": "claim p99, ms",
    "cpu_ms_per_task": "CPU of hosts, ms a task", "bytes_per_task": "bytes a task",
    "all_woken_ms": "all woken, ms", "server_cpu_ms": "CPU of the server, ms", "round_ms": "one round, ms",
}  # fmt: skip


def fitted(points: Line) -> tuple[float, float]:
    """The line through these points with the least squares: what x adds, and where it begins."""
    count = len(points)
    x, y = sum(each[0] for each in points) / count, sum(each[1] for each in points) / count
    spread = sum((each[0] - x) ** 2 for each in points)
    slope = sum((each[0] - x) * (each[1] - y) for each in points) / spread if spread else 0.0
    return slope, y - slope * x


def table(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    rows = list(rows)
    names = list(rows[0])
    yield "| " + " | ".join(PLAIN.get(name, name.replace("_", " ")) for name in names) + " |"
    yield "|" + "---|" * len(names)
    for row in rows:
        yield (
            "| "
            + " | ".join(f"{row[name]:,}" if isinstance(row[name], int | float) else str(row[name]) for name in names)
            + " |"
        )
    yield ""


def tables(found: Found) -> Iterator[str]:
    for name in ("hosts", "teammates"):
        if name in found:
            yield f"### {name.capitalize()}\n"
            yield from table({"database": kind, **row} for kind, rows in found[name].items() for row in rows)
    if "boards" in found:
        yield "### Boards\n"
        yield from table({"how": how, **row} for how, row in found["boards"].items())
    if "wakes" in found:
        yield "### Wakes\n"
        yield from table(found["wakes"])
        slope, start = fitted([(row["listeners"], row["server_cpu_ms"]) for row in found["wakes"]])
        yield f"Fitted: a put that wakes costs the server {start:.2f} ms, and {slope:.3f} ms more for each listener.\n"
    if "idle" in found:
        yield "### Idle hosts\n"
        yield from table(found["idle"])
        slope, start = fitted([(row["hosts"], row["server_cpu_ms"]) for row in found["idle"]])
        more = f"{slope * 1_000:.3f} ms more for each 1,000 hosts"
        yield f"Fitted: a round costs the server {start:.2f} ms, and {more}.\n"
        yield from idle_plan(slope, start)
    if "reads" in found:
        yield "### Reads\n"
        shown = [(kind, row) for kind, rows in found["reads"].items() for row in rows]
        yield from table(
            {"database": kind, "tasks": row["tasks"], **_named(row["milliseconds"])} for kind, row in shown
        )


def _named(took: Mapping[str, float]) -> dict[str, Any]:
    return {f"`{name}`" if name not in ("report",) else name: value for name, value in took.items()}


def idle_plan(slope: float, start: float) -> Iterator[str]:
    """What idle hosts take of a server's cores, when each asks a round every five seconds."""

    def cores(hosts: int) -> float:
        return hosts * (start + slope * hosts) / 5_000

    yield from table(
        {
            "idle hosts": many, "cores for one board of all": round(cores(many), 2),
            "cores for boards of 100 hosts each": round(cores(100) * many / 100, 2),
        }
        for many in (100, 1_000, 10_000)
    )  # fmt: skip


def lines(found: Found) -> dict[str, Line]:
    made: dict[str, Line] = {}
    for kind, rows in found.get("hosts", {}).items():
        made[f"{kind}: tasks/s by hosts"] = [(row["hosts"], row["tasks_per_second"]) for row in rows]
    for kind, rows in found.get("teammates", {}).items():
        made[f"{kind}: tasks/s by teammates"] = [(row["teammates"], row["tasks_per_second"]) for row in rows]
    if "idle" in found:
        made["server CPU of an idle round, µs"] = [
            (row["hosts"], 1_000 * row["server_cpu_ms"]) for row in found["idle"]
        ]
    return {name: [point for point in line if min(point) > 0] for name, line in made.items()}


def picture(found: Found) -> str:
    drawn = lines(found)
    points = [point for line in drawn.values() for point in line]
    x_max = math.ceil(math.log10(max(x for x, _ in points)))
    y_min = math.floor(math.log10(min(y for _, y in points)))
    y_max = math.ceil(math.log10(max(y for _, y in points)))

    def place(x: float, y: float) -> str:
        across = LEFT + math.log10(x) / max(1, x_max) * (WIDTH - LEFT - RIGHT)
        down = HEIGHT - BOTTOM - (math.log10(y) - y_min) / max(1, y_max - y_min) * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{down:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(x_max + 1):
        x, y = place(10**power, 10**y_min).split(",")
        parts.append(f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{10**power:,}</text>')
    for power in range(y_min, y_max + 1):
        x, y = place(1, 10**power).split(",")
        parts.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{10**power:,g}</text>')
    parts.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">hosts or teammates</text>'
    )
    for number, (name, line) in enumerate(drawn.items()):
        color = COLORS[number % len(COLORS)]
        path = " ".join(place(*point) for point in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{each.split(",")[0]}" cy="{each.split(",")[1]}" r="3" fill="{color}"/>'
            for each in path.split()
        ]
        parts.append(f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 16 + 18 * number}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def write(docs: Path, found: Found) -> None:
    (docs / "pictures" / "scale.svg").write_text(picture(found))
    page = docs / "scale.md"
    before, _, rest = page.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n" + "\n".join(tables(found)).rstrip() + f"\n\n{END}{after}")
