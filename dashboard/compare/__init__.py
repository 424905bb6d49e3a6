"""Samples against samples: features, statistics with their null, mean pictures, the blind test.

All of it looks at synthetic samples alone: post-processing, free of privacy cost.
"""
