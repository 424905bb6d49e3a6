"""A node's own data brought into the form that its federation agreed on, on its owner's machine."""
