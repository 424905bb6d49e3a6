"""A run as files: directory, place, status, history, key, releases, publication."""
