"""Networks that client and server must agree on. PyTorch only."""
