"""Our pages. Each file has its `DashboardPage`, whose function puts the content on the screen."""
