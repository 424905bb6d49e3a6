"""Faults of a whole deployment and of the dashboard, and spoiled archives for what reads them.

They stand above all floors: they start the command, the dashboard and Flower's processes.
``python -m harness.deployed_faults --processes 63`` prints the table; tests run a short form.
"""
