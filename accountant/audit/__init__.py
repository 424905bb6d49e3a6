"""Audits: can a release be caught contradicting its claim? Statistics alone; no federation here."""
