"""Work that is written down elsewhere: read into tasks, and a board written out again."""
