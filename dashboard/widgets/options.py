"""How Streamlit is set up: quiet, local, in our own colours by day and by night.

Set in code, before the server is made, because it must hold whatever the folder the program is
started in, or the user's own ``~/.streamlit/config.toml``, say: a setting made for another app
must not turn telemetry on here.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedlens.foundation.errors import WrongUse


class DashboardError(WrongUse):
    """The dashboard cannot be served as asked; the message says what to change."""


STORE_VARIABLE = "FEDLENS_STORE"
"""Environment variable with the URL of the store that is shown."""
USER_VARIABLE = "FEDLENS_DASHBOARD_USER"
"""Environment variable with the name of the account that the access token opens."""
COOKIE_VARIABLE = "FEDLENS_DASHBOARD_COOKIE"
"""Environment variable with the name of the cookie that names a visitor's session."""

LIGHT: Mapping[str, str] = {
    "backgroundColor": "#fbfcfd",
    "borderColor": "#dde3ea",
    "linkColor": "#1b5f9e",
    "primaryColor": "#1b5f9e",
    "secondaryBackgroundColor": "#f1f4f8",
    "textColor": "#17212d",
}
DARK: Mapping[str, str] = {
    "backgroundColor": "#10161d",
    "borderColor": "#2b3644",
    "linkColor": "#74b5ee",
    "primaryColor": "#2f74b5",
    "secondaryBackgroundColor": "#1e2833",
    "textColor": "#e7edf4",
}

OPTIONS: Mapping[str, str | bool] = {
    "browser.gatherUsageStats": False,
    "client.showErrorDetails": "type",
    "client.showErrorLinks": False,
    "client.toolbarMode": "minimal",
    "logger.level": "warning",
    "server.enableAgentApi": False,
    "server.enableStaticServing": False,
    "server.fileWatcherType": "none",
    "server.headless": True,
    "server.runOnSave": False,
    "server.showEmailPrompt": False,
    "theme.baseRadius": "0.5rem",
    "theme.font": "sans-serif",
    **{f"theme.light.{name}": value for name, value in LIGHT.items()},
    **{f"theme.dark.{name}": value for name, value in DARK.items()},
}


def apply_options() -> None:
    """Set Streamlit up; to be called before its server is made."""
    from streamlit import config

    for name, value in OPTIONS.items():
        config.set_option(name, value)
