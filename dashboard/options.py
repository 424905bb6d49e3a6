"""How Streamlit is set up: quiet, local, light.

Set in code, before the server is made, because it must hold whatever the folder the program is
started in, or the user's own ``~/.streamlit/config.toml``, say: a setting made for another app
must not turn telemetry on here.
"""

from __future__ import annotations

from collections.abc import Mapping

STORE_VARIABLE = "FEDLENS_STORE"
"""Environment variable with the URL of the store that is shown."""
USER_VARIABLE = "FEDLENS_DASHBOARD_USER"
"""Environment variable with the name under which answers are stored."""

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
    "theme.backgroundColor": "#ffffff",
    "theme.base": "light",
    "theme.baseRadius": "0.5rem",
    "theme.borderColor": "#dfe5ec",
    "theme.font": "sans-serif",
    "theme.primaryColor": "#1f5fa8",
    "theme.secondaryBackgroundColor": "#f5f7fa",
    "theme.textColor": "#1f2a37",
}


def apply() -> None:
    """Set Streamlit up; to be called before its server is made."""
    from streamlit import config

    for name, value in OPTIONS.items():
        config.set_option(name, value)
