"""What a released data card says: histograms with their errors, changes, and what was expected."""
