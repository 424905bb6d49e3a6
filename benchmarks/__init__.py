"""Measurements that print tables. They are no tests: figures move with the machine."""
