"""What the page shows of a board, as JSON, from a view of it: live or past, by the same code. Pure.

Key names are those of `--json`. Times are milliseconds since 1970, money is in dollars, durations are in seconds.
"""

from __future__ import annotations

from .changes import changes_shape
from .merges import merges_shape, transcripts_to_read, verdict_of
from .money import money_shape
from .summaries import hosts_shape, merge_of, messages_shape, notes_shape, state_shape, stream_shape, task_summary
from .task_page import task_detail
from .timeline import timeline_shape

__all__ = [
    "changes_shape",
    "hosts_shape",
    "merge_of",
    "merges_shape",
    "messages_shape",
    "money_shape",
    "notes_shape",
    "state_shape",
    "stream_shape",
    "task_detail",
    "task_summary",
    "timeline_shape",
    "transcripts_to_read",
    "verdict_of",
]
