"""What can go wrong before a page is shown, said in one sentence with the mend."""


class DashboardError(ValueError):
    """The dashboard cannot be served as asked; the message says what to change."""
