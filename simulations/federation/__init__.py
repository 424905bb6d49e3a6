"""A federation on one machine: who holds what, and the apps that open it."""
