"""Parsers of what comes from elsewhere, fed with spoiled input: no crash, hang or growth.

``python -m harness.fuzzing --count 1000000`` prints the table; tests run a short form.
"""
