"""Privatizers: filters that devices run before data leaves, and how they learn.

One Protocol of their steps (`fedlens.privatizers.protocol`), one registry of the methods that
federations train (`fedlens.privatizers.methods`).
"""
