"""The judge of histories, by the names the tests know it under; it lives with the simulation, which uses the same."""

from __future__ import annotations

from dugnad.sim.oracle import faults, groundless
from dugnad.sim.verdict import read_log, unheard, verdict

__all__ = ["faults", "groundless", "read_log", "unheard", "verdict"]
