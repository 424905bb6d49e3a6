"""How messages get from server to nodes in a simulation: in this process, or through Ray."""
