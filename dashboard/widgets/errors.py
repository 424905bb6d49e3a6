"""What can go wrong before a page is shown, said in one sentence with the mend."""

from fedlens.foundation.errors import WrongUse


class DashboardError(WrongUse):
    """The dashboard cannot be served as asked; the message says what to change."""
