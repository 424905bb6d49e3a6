"""Data sets, partitions, transports, studies and the ``fedlens`` command."""
