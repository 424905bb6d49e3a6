"""The login page: one self-contained document, since an unknown visitor may load nothing else."""

from __future__ import annotations

from html import escape

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fedlens: sign in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1f2a37; background: #f5f7fa; margin: 0; }}
main {{ max-width: 26rem; margin: 14vh auto; padding: 2rem; background: #fff;
  border: 1px solid #dfe5ec; border-radius: .75rem; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .5rem; }}
label {{ display: block; font-weight: 600; margin-top: 1rem; }}
input {{ box-sizing: border-box; width: 100%; padding: .6rem; margin: .35rem 0 1rem; font: inherit;
  border: 1px solid #b6c2cf; border-radius: .5rem; }}
button {{ font: inherit; font-weight: 600; color: #fff; background: #1f5fa8; border: 0;
  padding: .6rem 1.2rem; border-radius: .5rem; cursor: pointer; }}
.wrong {{ color: #a61b1b; font-weight: 600; }}
hr {{ border: 0; border-top: 1px solid #dfe5ec; margin: 1.5rem 0; }}
code {{ background: #eef2f6; padding: .1rem .3rem; border-radius: .25rem; }}
</style></head><body><main>
<h1>fedlens</h1>
{message}
{accounts}
<p>{intro}The access token is in the link that <code>fedlens dashboard</code> printed when it was
started: follow that link, or paste the token here.</p>
<form method="post" action="/login">
<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="off" required{focus}>
<button type="submit">Open the dashboard</button>
</form></main></body></html>
"""
_ACCOUNTS = """<form method="post" action="/login">
<label for="name">Name</label>
<input id="name" name="name" autocomplete="username" maxlength="60" required autofocus>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password" required>
<button type="submit">Sign in</button>
</form>
<hr>"""


def login_page(message: str = "", *, accounts: bool = False) -> str:
    """The page's HTML.

    Args:
        message: plain text, shown above the forms.
        accounts: also ask for a name and its password.
    """
    return _PAGE.format(
        message=f'<p class="wrong" role="alert">{escape(message)}</p>' if message else "",
        accounts=_ACCOUNTS if accounts else "",
        intro="Or open it as its owner. " if accounts else "",
        focus="" if accounts else " autofocus",
    )
