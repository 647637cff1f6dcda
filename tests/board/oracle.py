"""The judge of histories, by the names the tests know it under; it lives with the simulation, which uses the same."""

from __future__ import annotations

from simulation.oracle import SETTLED, faults
from simulation.verdict import groundless, read_log, unheard, verdict

__all__ = ["SETTLED", "faults", "groundless", "read_log", "unheard", "verdict"]
