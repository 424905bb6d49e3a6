"""Both moments of the privacy loss by themselves, float64 [orders, m]."""

from fedlens.accountant.bayesian.loss_moments import log_moments


def left_log_moments(lambdas, rate, distances, noise_std):
    """Equation 6: the exact moment towards the larger data set."""
    return log_moments(lambdas, rate, distances, noise_std)[0]


def right_log_moments(lambdas, rate, distances, noise_std):
    """Equation 7 as printed."""
    return log_moments(lambdas, rate, distances, noise_std)[1]
