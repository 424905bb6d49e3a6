"""The report on a method: one curve of use against secret, attacked afresh at every point.

Simulation only: filters are trained and measured on raw data, without a budget.
"""
