"""Privacy accounting: events, moments, Bayesian, ledger. NumPy and SciPy only."""
