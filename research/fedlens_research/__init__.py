"""Privatizers in simulation: their data, training, attackers and curves."""
