"""Files read by libraries in child processes, with bounded memory and time."""
