"""The report on a method: one curve of utility against attribute, attacked afresh at every point.

Simulation only: filters are trained and measured on raw data, without a budget.
"""
