"""The whole team in virtual time: under faults with an oracle that judges it, or as a rehearsal of somebody's plan."""
