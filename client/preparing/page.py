"""One page of what a node holds and what it will answer, for the owner: it stays on the machine."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from html import escape

from fedlens.client.contract import FederationContract
from fedlens.client.preparing.report import NodeReport

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""No request leaves the page, and none of its texts runs."""
SENT = {
    "frozen": "for each class, means of fixed random features of a user's pictures",
    "focused": "the same, along directions in which released samples lie",
    "wgan": "the change of a critic's weights after a few steps on a user's pictures",
    "annotator": "gradients of a classifier on fixed features of a user's pictures",
    "privatizer": "gradients of a filter and of its adversary",
    "frequencies": "means of the lowest frequencies of a user's pictures, and of their squares",
    "moments": "for each class and sensitive value, sums of features and of their products",
    "probe": "one number from 0 to 1, a user's answer to a written question",
    "card": "histograms of what a user's pictures are like, and of how many there are",
}
"""What a user adds to a sum, by the kind of task."""
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0}td,th{padding:.2rem .8rem .2rem 0;"
    "text-align:left;vertical-align:top}td.n{text-align:right}img{image-rendering:pixelated;"
    "max-width:100%}h2{margin-top:2rem}.warn{border:2px solid #a33;padding:.5rem 1rem}"
)


def owners_page(
    title: str, report: NodeReport, contract: FederationContract, faults: Iterable[str]
) -> str:
    """The page: what there is, what was left out and why, how it looks, and what will be sent.

    It shows figures and pictures of real people, makes no request, and has every text escaped.

    Args:
        title: of the source or store.
        report: of what there is.
        contract: of the federation.
        faults: what is wrong, a line each.
    """
    wrong = "".join(f"<li>{escape(one)}</li>" for one in faults)
    parts = [
        f"<h1>{escape(title)}</h1>",
        "<p class=warn>Figures and pictures of real people, for their owner alone: keep this page "
        "on your machine.</p>",
        f"<h2>What is wrong</h2><ul>{wrong}</ul>" if wrong else "<p>Nothing is wrong.</p>",
        _held(report),
        _left_out(report),
        _looks(report),
        _sent(contract),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        f"<title>fedlens: {escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _held(report: NodeReport) -> str:
    least, median, most = report.held
    channels, side, _ = report.shape
    rows = [
        ("records", f"{report.records:,}"),
        ("users", f"{report.users:,}"),
        ("records of a user", f"{least:,} to {most:,}, half of them at most {median:,}"),
        ("a picture", f"{side} x {side}, {'grey' if channels == 1 else 'colour'}"),
    ]
    classes = [(f"{at} {name}", f"{n:,}") for at, (name, n) in enumerate(report.classes.items())]
    notes = "".join(f"<li>{escape(one)}</li>" for one in report.notes)
    return f"<h2>What there is</h2>{_table(rows)}<h3>Records by class</h3>{_table(classes)}" + (
        f"<ul>{notes}</ul>" if notes else ""
    )


def _left_out(report: NodeReport) -> str:
    if not report.left_out:
        return "<h2>What was left out</h2><p>Nothing.</p>"
    head = "<tr><th>why</th><th>records</th><th>such as</th></tr>"
    rows = "".join(
        f"<tr><td>{escape(why)}</td><td class=n>{count:,}</td>"
        f"<td>{escape(', '.join(report.examples.get(why, [])))}</td></tr>"
        for why, count in report.left_out.items()
    )
    return f"<h2>What was left out</h2><table>{head}{rows}</table>"


def _looks(report: NodeReport) -> str:
    if not report.looks:
        return ""
    content = base64.b64encode(report.looks).decode()
    return (
        "<h2>How it looks</h2><p>Some pictures of each class, as the federation will have them. "
        "One that is turned, inverted or under another class teaches the others wrong.</p>"
        f'<img alt="pictures by class" src="data:image/png;base64,{content}">'
    )


def _sent(contract: FederationContract) -> str:
    allowed = contract.tasks or tuple(SENT)
    tasks = [(kind, SENT.get(kind, "what its package says")) for kind in allowed]
    person = "user" if contract.unit == "user" else "record"
    limit, least = contract.records_per_user, contract.least_noise_multiplier
    rows = [
        ("protected", f"each {person}"),
        ("records of a user that count", f"{limit:,} at most" if limit else "as a run says"),
        ("noise", f"at least {least:g} times that length" if least else "no least noise is agreed"),
        ("drawn for a round", f"at most {contract.largest_sampling_rate:.0%} of the {person}s"),
    ]
    noise = (
        "The server adds the noise before anything is released, and keeps the node's sums to itself"
        if contract.unit == "user"
        else "The node adds the noise itself"
    )
    return (
        "<h2>What will be sent</h2>"
        f"<p>No picture, name or record. In a round the node sends sums over the {person}s that "
        f"were drawn, in which each counts at most a fixed length. {noise}. The contract "
        f"<b>{escape(contract.name)}</b> allows:</p>{_table(rows)}"
        f"<h3>What is summed, by the kind of task</h3>{_table(tasks)}"
    )


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(said)}</td></tr>" for name, said in rows
    )
    return f"<table>{body}</table>"
