"""The verbs of the command that this package adds."""
