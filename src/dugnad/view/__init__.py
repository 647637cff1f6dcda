"""What people see: tables, lines and the live view, on a terminal and in a pipe. Nothing here changes the board."""
