"""What a plan would take, played with the rules of the board before anything is paid."""
