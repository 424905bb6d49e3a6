"""Faults of processes, disks, clocks and networks: what a run that goes on afterwards has kept.

``python -m harness.faults --kills 200`` prints the table; tests run a short form.
"""
