"""The small process that starts commands, so that the large one never forks."""
