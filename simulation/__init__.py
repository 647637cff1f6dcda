"""The storm: the whole team in virtual time under faults, an oracle that judges it, and planted bugs."""
