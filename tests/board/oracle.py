"""The judge of histories, by the names the tests know it under; it lives with the simulation, which uses the same."""

from __future__ import annotations

from dugnad.sim.oracle import SETTLED, faults
from dugnad.sim.verdict import groundless, read_log, unheard, verdict

__all__ = ["SETTLED", "faults", "groundless", "read_log", "unheard", "verdict"]
