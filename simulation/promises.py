"""The promises of the design by number, and what is said of one that was broken."""

from __future__ import annotations

PROMISES = {
    0: "no defect", 1: "one owner", 2: "fencing", 3: "order", 4: "exactly one end", 5: "budget", 6: "loop guards",
    7: "messages", 8: "durable", 9: "identity", 10: "idle costs nothing", 11: "the log is the history", 12: "contained",
}  # fmt: skip


class Fault(str):
    """What is wrong, and which promise it breaks."""

    promise: int

    def __new__(cls, promise: int, text: str) -> Fault:
        made = super().__new__(cls, text)
        made.promise = promise
        return made

    @property
    def named(self) -> str:
        return f"promise {self.promise} ({PROMISES[self.promise]}): {self}"
