"""What can be done with a board: each verb is one transaction."""
