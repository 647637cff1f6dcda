"""What people see: tables, lines and the live view, in a terminal and in a pipe. It changes nothing."""
