"""Who may see the dashboard: accounts, sign-in, sessions."""
