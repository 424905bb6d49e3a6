"""fedlens beside its peers in one run: ``make bench``.

Users' local steps of the WGAN critic: fedlens' engines, Apple's pfl, and Flower's own simulation
with a ClientApp a user. All do the same: SGD steps of as many real and generated images under
weight limits, a user's change clipped, noise on the sum.
"""
