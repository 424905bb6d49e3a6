"""A run's configuration: one frozen tree, checked when it is made."""
