"""Mutants, hostile nodes, fuzzers and injected faults."""
