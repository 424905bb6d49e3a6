"""Runs on the screen: cards, privacy, ledger, audits."""
