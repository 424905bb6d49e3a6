"""Audits of the program's own code: canaries and silence through the real path of a round."""
