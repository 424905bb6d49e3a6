"""A federation on real machines: certificates, keys, start scripts, checks, status, operations.

`fedlens.deploy.initialise` writes one folder for each machine, `fedlens.deploy.supervise` starts
what a folder is for, `fedlens.deploy.checking` says what is wrong with it.
"""
