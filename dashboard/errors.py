"""What can go wrong before a page is shown, said in one sentence with the mend."""

from foundation.errors import FedlensError


class DashboardError(FedlensError, ValueError):
    """The dashboard cannot be served as asked; the message says what to change."""
