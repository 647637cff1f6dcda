"""The team in virtual time: rehearsing a plan before it is paid for, and the whole runtime under faults."""
