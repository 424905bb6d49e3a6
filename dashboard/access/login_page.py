"""The pages that stand outside of Streamlit: to sign in, and for addresses that lead nowhere.

Each is one self-contained document, since an unknown visitor may load nothing else.
"""

from html import escape
from urllib.parse import urlencode

THEN = "then"
"""Field of the form that says where the visitor was going."""
_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --ink: #1f2a37; --page: #f5f7fa; --card: #fff; --line: #dfe5ec;
  --field: #7d8b9a; --accent: #1f5fa8; --bad: #a61b1b; --well: #eef2f6; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e7edf4; --page: #10161d; --card: #18202a;
  --line: #2b3644; --field: #6d7c8d; --accent: #2f74b5; --bad: #ff9c93; --well: #1e2833; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  margin: 0; }}
main {{ max-width: 26rem; margin: 14vh auto; padding: 2rem; background: var(--card);
  border: 1px solid var(--line); border-radius: .75rem; }}
h1 {{ font-size: 1.4rem; margin: 0 0 .5rem; }}
a {{ color: inherit; }}
label {{ display: block; font-weight: 600; margin-top: 1rem; }}
input {{ box-sizing: border-box; width: 100%; padding: .6rem; margin: .35rem 0 1rem; font: inherit;
  color: inherit; background: var(--card); border: 1px solid var(--field); border-radius: .5rem; }}
button {{ font: inherit; font-weight: 600; color: #fff; background: var(--accent); border: 0;
  padding: .6rem 1.2rem; border-radius: .5rem; cursor: pointer; }}
a:focus-visible, input:focus-visible, button:focus-visible {{ outline: 3px solid var(--field);
  outline-offset: 2px; }}
.provider {{ display: block; text-align: center; font-weight: 600; color: #fff;
  background: var(--accent); text-decoration: none; padding: .6rem; border-radius: .5rem; }}
.wrong {{ color: var(--bad); font-weight: 600; }}
hr {{ border: 0; border-top: 1px solid var(--line); margin: 1.5rem 0; }}
code {{ background: var(--well); padding: .1rem .3rem; border-radius: .25rem; }}
</style></head><body><main>
"""
_PAGE = """<h1>fedlens</h1>
{message}
{provider}
{accounts}
<p>{intro}The access token is in the link that <code>fedlens dashboard</code> printed when it was
started: follow that link, or paste the token here.</p>
<form method="post" action="login">{then}
<label for="token">Access token</label>
<input id="token" name="token" type="password" autocomplete="off" required{focus}>
<button type="submit">Open the dashboard</button>
</form></main></body></html>
"""
_ACCOUNTS = """<form method="post" action="login">{then}
<label for="name">Name</label>
<input id="name" name="name" autocomplete="username" maxlength="60" required value="{name}"{first}>
<label for="password">Password</label>
<input id="password" name="password" type="password" autocomplete="current-password"
  required{second}>
<button type="submit">Sign in</button>
</form>
<hr>"""
_PROVIDER = """<p><a class="provider" href="login-provider{query}">Sign in with {host}</a></p>
<hr>"""
NOT_FOUND = _HEAD.format(title="fedlens: no such page") + (
    "<h1>No such page</h1><p>The address is wrong, or your role does not open this page.</p>"
    '<p><a href="./">Go to your first page</a></p></main></body></html>\n'
)


def login_page(
    message: str = "",
    *,
    accounts: bool = False,
    then: str = "",
    name: str = "",
    provider: str = "",
) -> str:
    """The page's HTML.

    Args:
        message: plain text, shown above the forms.
        accounts: also ask for a name and its password.
        then: where the visitor was going: path and query, without the first slash.
        name: that was given before.
        provider: host of the identity provider by which people can sign in; empty for none.
    """
    hidden = f'<input type="hidden" name="{THEN}" value="{escape(then)}">' if then else ""
    focus = " autofocus"
    asked = _ACCOUNTS.format(
        then=hidden,
        name=escape(name),
        first="" if name else focus,
        second=focus if name else "",
    )
    query = f"?{urlencode({THEN: then})}" if then else ""
    offered = _PROVIDER.format(query=escape(query), host=escape(provider)) if provider else ""
    return _HEAD.format(title="fedlens: sign in") + _PAGE.format(
        provider=offered,
        message=f'<p class="wrong" role="alert">{escape(message)}</p>' if message else "",
        accounts=asked if accounts else "",
        intro="Or open it as its owner. " if accounts or provider else "",
        focus="" if accounts else focus,
        then=hidden,
    )
