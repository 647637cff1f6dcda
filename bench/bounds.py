"""What a perfect runtime would need: greedy list scheduling, with the order of the board and no cost of its own.

Pure arithmetic. A teammate that is free takes at once what is ready, by the longest chain of dependents behind it and
then by age, as the board does; what a task lets go on is ready the moment it may be.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

WIDTHS = (4, 12, 24, 12, 24, 12, 24, 8)  # Of the layers: 120 tasks, fan-out and fan-in in turn.


def layered(widths: Sequence[int] = WIDTHS) -> list[tuple[int, ...]]:
    """For each task the places of those it needs: its share of the layer before, and one across."""
    needs: list[tuple[int, ...]] = []
    before: range | None = None
    for width in widths:
        begin = len(needs)
        for place in range(width):
            if before is None:
                needs.append(())
                continue
            share = range(place * len(before) // width, max(1, (place + 1) * len(before) // width))
            across = (place * 7 + 3) % len(before)
            near = set(share) or {place * len(before) // width}
            needs.append(tuple(sorted(before[each] for each in near | {across})))
        before = range(begin, begin + width)
    return needs


def chains(needs: Sequence[Sequence[int]]) -> list[int]:
    """How long the longest chain of dependents behind each task is."""
    found = [0] * len(needs)
    for place in reversed(range(len(needs))):
        for needed in needs[place]:
            found[needed] = max(found[needed], found[place] + 1)
    return found


def dag_seconds(needs: Sequence[Sequence[int]], *, teammates: int, seconds_each: float) -> float:
    """When the last of these tasks ends."""
    behind = chains(needs)
    open_needs = [len(each) for each in needs]
    dependents: list[list[int]] = [[] for _ in needs]
    for place, each in enumerate(needs):
        for needed in each:
            dependents[needed].append(place)
    ready = [(-behind[place], place) for place, count in enumerate(open_needs) if not count]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < teammates:
            heapq.heappush(running, (now + seconds_each, heapq.heappop(ready)[1]))
        now = running[0][0]
        while running and running[0][0] <= now + 1e-9:  # Those that end together free their hands together.
            for place in dependents[heapq.heappop(running)[1]]:
                open_needs[place] -= 1
                if not open_needs[place]:
                    heapq.heappush(ready, (-behind[place], place))
    return now


def tree_seconds(*, teammates: int, turn_seconds: float, depth: int, runs: int) -> float:
    """When the last of so many runs ends, if every task puts two more in its first of two turns, down to a depth."""
    ready: list[tuple[float, int, int]] = [(0.0, 0, 0)]  # From when on, which one, at which depth.
    free = [0.0] * teammates
    count = put = 0
    last = 0.0
    while ready and count < runs:
        since, _, level = heapq.heappop(ready)
        begin = max(since, heapq.heappop(free))
        end = begin + 2 * turn_seconds
        heapq.heappush(free, end)
        count, last = count + 1, max(last, end)
        if level < depth:
            for _ in range(2):
                put += 1
                heapq.heappush(ready, (begin + turn_seconds, put, level + 1))
    return last


if __name__ == "__main__":
    print(f"120 tasks: {dag_seconds(layered(), teammates=8, seconds_each=0.4):.1f} s")
    print(f"100 runs: {tree_seconds(teammates=8, turn_seconds=0.2, depth=6, runs=100):.1f} s")
