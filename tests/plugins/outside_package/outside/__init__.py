"""One plug-in of each kind for fedlens; each file is one of them."""
