"""A data card as one HTML page that needs nothing else: bars with 95% intervals, drawn as SVG."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import Any

from fedlens.accountant.wording import shown

WIDTH, HEIGHT, BASE = 380, 120, 96
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""No request leaves the page, and none of its texts runs."""
LETTERS = 72
"""As many fit below the bars; of longer names the first, the middle and the last are there."""
_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:82rem;margin:1.5rem auto;padding:0 1rem;"
    "color:#222}"
)
_KINDS = {
    "bar": 'fill="#1f5fa8"',
    "was": 'fill="none" stroke="#d1711b" stroke-width="1.5"',
    "err": 'stroke="#222"',
}
"""How bars, those of an earlier card, and errors are drawn."""
_CARD = (
    ".datacard .figures{display:grid;gap:1rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(390px,100%),1fr))}"
    ".datacard figure{margin:0;border:1px solid #ddd;border-radius:6px;padding:.6rem}"
    ".datacard figcaption{color:#555;font-size:.86rem}.datacard figcaption b{font-size:1.02rem}"
    ".datacard svg,.datacard img{width:100%}"
    ".datacard figure.changed{border:2px solid #d1711b}"
    ".datacard table{border-collapse:collapse;margin:.5rem 0 1.5rem}"
    ".datacard td,.datacard th{padding:.15rem .9rem .15rem 0;text-align:left}"
    ".datacard .falls,.datacard .named{color:#a32;font-weight:600}"
    ".datacard .warn{border:2px solid #a33;padding:.4rem .8rem}"
)


def card_page(report: Mapping[str, Any]) -> str:
    """The page of a card.

    Args:
        report: the JSON object of `fedlens card`.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        f"<title>fedlens: data card</title><style>{_STYLE}</style></head>"
        f"<body><h1>Data card</h1>{card_body(report)}</body></html>\n"
    )


def card_body(report: Mapping[str, Any], *, as_images: bool = False) -> str:
    """What stands on the page, for another page to hold; it has its own style.

    Args:
        report: the JSON object of `fedlens card`.
        as_images: draw histograms as images, for a page that takes no SVG inside; their bars then
            say nothing where they are pointed at.

    Raises:
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: it is no report of a
            card.
    """
    before = report["before"] or {"statistics": []}
    old = {one["name"]: one for one in before["statistics"]}
    named = {one["name"] for one in report["changes"] if one["named"]}
    parts = [
        _planted(report["planted"]),
        f"<p>{escape(price_words(report))}</p>",
        _verdicts(report["verdicts"]),
        _changes(report["changes"], report["compared"], report.get("not_compared", [])),
        '<div class="figures">',
        *(
            _figure(one, old.get(one["name"]), one["name"] in named, as_images)
            for one in report["statistics"]
        ),
        "</div>",
        f"<p>{escape(error_words(report))}</p>",
    ]
    return f'<style>{_CARD}</style><div class="datacard">{"".join(parts)}</div>'


def price_words(report: Mapping[str, Any]) -> str:
    """Whom it is of, and both guarantees."""
    return (
        f"{report['users']:,.0f} users. The card alone costs DP ε = {_epsilon(report['epsilon'])}; "
        f"all that its run released DP ε = {_epsilon(report['spent'])} at δ = {report['delta']:g}, "
        f"Bayesian DP ε = {_epsilon(report['bayesian_epsilon'])} (estimate) and "
        f"{_epsilon(report['bayesian_sound'])} (sound, for people like these) at "
        f"δ = {report['bayesian_delta']:g}."
    )


def error_words(report: Mapping[str, Any]) -> str:
    """What the error bars are, and what they leave out."""
    return (
        "Bars of records are means of users' shares, so a user with many records counts like one "
        "with few; bars of users are of all enrolled, and what they leave holds no records. The "
        "first and the last bar hold what lies beyond them too; a median there may lie beyond. "
        "Error bars are 95% intervals, bin by bin: the noise, which is known, and a "
        "bound of the chance by which these users were drawn from people like them. Not in them: "
        "records of a user beyond those that take part, and that users whose pictures are all "
        f"alike count for less (users' weight is {report['mass']:.0%} ± "
        f"{2 * report['mass_noise']:.0%} of all enrolled; absent ones have none)."
    )


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else shown(value)


def _planted(faults: str) -> str:
    said = f"Planted in this simulation: {escape(faults)}"
    return f"<p class=warn>{said}</p>" if faults else ""


def _verdicts(verdicts: Sequence[Mapping[str, Any]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one['expectation'])}</code>"
        f"<td class='{escape(one['outcome'].split()[0])}'>"
        f"{escape(one['outcome'])}<td>{escape(one['says'])}<td>{one['error']:.2g}"
        for one in verdicts
    )
    head = "<tr><th>expected<th>outcome<th>what was found<th>wrong in at most"
    return f"<h2>Expectations</h2><table>{head}{rows}</table>" if rows else ""


def left_out_words(names: Sequence[str]) -> str:
    """What a comparison says of statistics that it leaves out; empty for none."""
    listed = ", ".join(names)
    return f"Not compared, for one card lacks them or has other bins: {listed}." if names else ""


def _changes(changes: Sequence[Mapping[str, Any]], compared: str, left_out: Sequence[str]) -> str:
    rows = "".join(
        f"<tr class='{'named' if one['named'] else ''}'><td>{escape(one['name'])}"
        f"<td>{escape(one['bin'])}<td>{one['difference']:+.1%} ± {one['half_width']:.1%}"
        f"<td>{one['p_value']:.2g}<td>{one['adjusted']:.2g}"
        f"<td>{'changed' if one['named'] else '-'}"
        for one in changes
    )
    head = "<tr><th>statistic<th>bin that differs most<th>now less before<th>p<th>p, corrected<th>"
    note = (
        "Orange outlines are the earlier card. A row is called changed below a corrected p of .05 "
        f"(Holm, {len(changes)} rows): equal people show any such row in at most 5 of 100 "
        f"comparisons. {escape(left_out_words(left_out))}"
    )
    title = f"<h2>What changed since {escape(PurePath(compared).name)}</h2>"
    return f"{title}<table>{head}{rows}</table><p>{note}</p>" if rows else ""


def _figure(
    one: Mapping[str, Any], before: Mapping[str, Any] | None, changed: bool, as_images: bool
) -> str:
    told = f" · {escape(quantity_words(one))}" if one["quantity"] else ""
    of = "users" if one["of"] == "users" else "records"
    picture = histogram_svg(one, before)
    if as_images:
        coded = base64.b64encode(picture.encode()).decode()
        alt = escape(f"histogram of {one['name']}")
        picture = f'<img src="data:image/svg+xml;base64,{coded}" alt="{alt}">'
    return (
        f"<figure class='{'changed' if changed else ''}'><figcaption><b>{escape(one['name'])}</b> "
        f"(share of {of}){told}<br>{escape(one['says'])}</figcaption>{picture}</figure>"
    )


def quantity_words(one: Mapping[str, Any]) -> str:
    """The number that stands for a statistic, with its interval; empty for none."""
    found = one["quantity"]
    if found is None:
        return ""
    unit = "%" if found["says"].startswith("share") else ""
    value, low, high = (found[name] * (100 if unit else 1) for name in ("value", "low", "high"))
    return f"{found['says']} {value:.3g}{unit} ({low:.3g} to {high:.3g}{unit})"


def histogram_svg(one: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> str:
    """Bars of shares with their intervals, an earlier card's as outlines.

    Args:
        one: a statistic of the command's JSON object.
        before: the same of an earlier card; None for none.
    """
    shares, halves, bins = one["shares"], one["half_widths"], one["bins"]
    old = before["shares"] if before and before["bins"] == bins else []
    top = max(0.05, *(share + half for share, half in zip(shares, halves, strict=True)), *old)
    wide = WIDTH / len(bins)
    tall = BASE - 12
    parts = []
    for i, (share, half) in enumerate(zip(shares, halves, strict=True)):
        middle = (i + 0.5) * wide
        parts.append(_bar(i * wide, wide, max(0.0, share) / top * tall, "bar", f"{bins[i]}: "
                          f"{share:.1%} ± {half:.1%}"))  # fmt: skip
        low, high = (BASE - max(0.0, edge) / top * tall for edge in (share - half, share + half))
        at = f'x1="{middle:.1f}" x2="{middle:.1f}" y1="{low:.1f}" y2="{high:.1f}"'
        parts.append(f'<line class="err" {_KINDS["err"]} {at}/>')
    for i, share in enumerate(old):
        parts.append(_bar(i * wide, wide, max(0.0, share) / top * tall, "was", ""))
    parts.append(f'<text x="2" y="9" fill="#555">{top:.0%}</text>')
    fits = sum(len(name) + 2 for name in bins) <= LETTERS
    named = range(len(bins)) if fits else (0, len(bins) // 2, len(bins) - 1)
    parts += [_label(i, wide, bins[i], len(bins)) for i in named]
    said = escape(f"histogram of {one['name']}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{said}" font-family="sans-serif" font-size="9">{"".join(parts)}</svg>'
    )


def _bar(left: float, wide: float, tall: float, kind: str, title: str) -> str:
    said = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect class="{kind}" {_KINDS[kind]} x="{left + 1:.1f}" y="{BASE - tall:.1f}" '
        f'width="{wide - 2:.1f}" height="{tall:.1f}">{said}</rect>'
    )


def _label(place: int, wide: float, name: str, bins: int) -> str:
    anchor = "start" if place == 0 else "end" if place == bins - 1 else "middle"
    x = {"start": 0.0, "end": wide * bins}.get(anchor, (place + 0.5) * wide)
    at = f'x="{x:.1f}" y="{BASE + 14}" text-anchor="{anchor}"'
    return f'<text fill="#555" {at}>{escape(name)}</text>'
