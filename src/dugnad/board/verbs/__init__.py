"""The writing verbs of the board; each is one transaction."""
