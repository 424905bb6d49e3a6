"""Traces are off by default, say rounds and parts, and nothing of users or of what went wrong."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.profile import profiled, span
from fedlens.foundation.traces import VARIABLE, traced, traces

pytestmark = pytest.mark.law("deployment: traces and metrics tell rounds only")


def spans_in(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_spans_say_what_is_inside_what_and_no_errors_text(tmp_path):
    path = tmp_path / "traces.jsonl"
    with pytest.raises(ValueError, match="a patient"), traces({VARIABLE: str(path)}):
        with traced("round", round=3, task="critic"), span("noise"):
            pass
        with span("generator"), span("accounting"):
            pass
        with traced("round", round=4), profiled() as profile, span("store"):
            raise ValueError("a patient")
    assert path.stat().st_mode & 0o077 == 0
    found = {one["name"]: one for one in spans_in(path) if one["name"] != "round"}
    assert set(found) == {"noise", "generator", "store"} and "store" in profile.seconds()
    (first, last) = (one for one in spans_in(path) if one["name"] == "round")
    assert found["noise"]["parent_id"] == first["context"]["span_id"]
    assert first["attributes"] == {"fedlens.round": 3, "fedlens.task": "critic"}
    assert last["events"] == [] and "patient" not in path.read_text()
    with span("afterwards"):
        pass
    assert "afterwards" not in path.read_text()


def test_without_the_variable_nothing_is_loaded_and_nothing_kept():
    import subprocess
    import sys

    code = (
        "import sys\nfrom fedlens.foundation.traces import traced, traces\n"
        "with traces({}), traced('round', round=1): pass\n"
        "print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("value", "word"), [("traces.jsonl", "absolute"), ("/nowhere/at/all", "No such")]
)
def test_what_cannot_be_is_refused_by_name(value, word):
    with pytest.raises(WrongUse, match=f"{VARIABLE}={value}.*{word}"), traces({VARIABLE: value}):
        pass


def test_spans_reach_a_collector(monkeypatch):
    taken = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self):
            taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    place = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", place)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with traces({VARIABLE: "otlp"}), traced("round", round=1):
        pass
    server.shutdown()
    server.server_close()
    assert [path for path, _ in taken] == ["/v1/traces"] and b"fedlens.round" in taken[0][1]
