"""The pages of the dashboard that this package adds."""
