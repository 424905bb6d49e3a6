"""One round: ask, charge, open, learn, tell."""
