"""Files for containers and proxies, read by the programs that they are for where those are here."""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from fedlens.deploy.initialise import FederationPlan, initialise, render_template

KUBECTL, NGINX, HADOLINT = (shutil.which(name) for name in ("kubectl", "nginx", "hadolint"))
DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")
INSTRUCTIONS = {"FROM", "ENV", "RUN", "COPY", "USER", "VOLUME", "ENTRYPOINT"}


def test_kubernetes_files_are_of_confined_pods_with_volumes_of_their_own(written):
    base = written / "kubernetes"
    listed = yaml.safe_load((base / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted({p.name for p in base.iterdir()} - {"kustomization.yaml"})
    objects_are_a_federation(
        [one for name in listed for one in yaml.safe_load_all((base / name).read_text())]
    )


@pytest.mark.parametrize("name", ["no", "on", "1", "null"])
def test_a_node_may_have_a_name_that_yaml_reads_as_something_else(name):
    (pod,) = yaml.safe_load_all(render_template("node.yaml", name=name, version="1"))
    assert pod["metadata"]["name"] == pod["spec"]["serviceName"] == name
    service = yaml.safe_load(render_template("compose-node.yaml", name=name, version="1"))
    assert list(service) == [name]


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_kustomize_builds_the_base(written):
    command = [KUBECTL, "kustomize", str(written / "kubernetes")]
    built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(built))
    assert {one["metadata"]["namespace"] for one in found} == {"fedlens"}
    objects_are_a_federation(found)


def objects_are_a_federation(objects: list[dict]) -> None:
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    wanted = {("Service", "superlink"), ("PersistentVolumeClaim", "runs")}
    assert set(found) == wanted | {("StatefulSet", n) for n in ("superlink", "north", "south")}
    for (kind, name), one in found.items():
        if kind == "StatefulSet":
            pod_is_confined(one["spec"]["template"]["spec"], name)
    service = found["Service", "superlink"]["spec"]
    labels = found["StatefulSet", "superlink"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"] == labels and service["ports"][0]["port"] == 19_555


def pod_is_confined(pod: dict, name: str) -> None:
    """No root, no rights, nothing mounted that is not declared, and the pod's own secret alone."""
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    declared = {volume["name"] for volume in pod["volumes"]}
    (secret,) = (v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v)
    assert secret == name
    for container in (*pod["containers"], *pod["initContainers"]):
        limits = container["securityContext"]
        assert limits["readOnlyRootFilesystem"] and not limits["allowPrivilegeEscalation"]
        assert limits["capabilities"] == {"drop": ["ALL"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= declared


@pytest.mark.parametrize("name", DOCKERFILES)
def test_a_dockerfile_is_of_instructions_and_runs_as_no_root(written, name):
    text = (written / "containers" / name).read_text()
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    words = [line.split(maxsplit=1) for line in lines if line.strip()]
    names = [word for word, _ in words]
    assert names[0] == "FROM" and set(names) <= INSTRUCTIONS
    assert names.index("USER") < names.index("ENTRYPOINT") and dict(words)["USER"] == "10001"
    start = json.loads(dict(words)["ENTRYPOINT"])
    assert start[-4:] == ["fedlens", "deploy", "start", "/fedlens"]
    copied = dict(words)["COPY"].split()[:-1]
    assert copied == ["*.whl", "constraints.txt"]  # what the docs have put beside it
    assert not re.search(r"\$(?!PATH)\w", text)  # nothing is left to be filled in


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed")
@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint_finds_no_fault_but_unpinned_system_packages(written, name):
    command = [HADOLINT, "--ignore", "DL3008", str(written / "containers" / name)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_compose_file_gives_each_service_its_own_folder(written):
    compose = yaml.safe_load((written / "containers" / "compose.yaml").read_text())
    for name, service in compose["services"].items():
        (volume,) = service["volumes"]
        source, target = volume.split(":")
        assert (written / "containers" / source).resolve().name == name
        assert (written / "containers" / source / "deploy.toml").exists()
        assert target == "/fedlens" and service["read_only"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["superlink"]["ports"])
    aliases = compose["services"]["superlink"]["networks"]["federation"]["aliases"]
    assert aliases == ["superlink"]  # the name that --name superlink has nodes ask for


class Dashboard(BaseHTTPRequestHandler):
    """Says what it was asked, in the dashboard's place."""

    def do_GET(self):
        upgrade = self.headers.get("Upgrade", "")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.path} {self.headers['Host']} {upgrade}".encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy(tmp_path, free_port):
    """The rules as they are written, with ports of this test and the federation's certificate."""
    federation = tmp_path / "wards"
    initialise(federation, FederationPlan(nodes=("north",), names=("localhost",)))
    server = HTTPServer(("127.0.0.1", 0), Dashboard)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, rules = free_port(), (federation / "proxy" / "nginx.conf").read_text()
    for old, new in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/fedlens/superlink", str(federation / "superlink")),
        ("127.0.0.1:8501", f"127.0.0.1:{server.server_port}"),
    ):
        assert old in rules
        rules = rules.replace(old, new)
    (tmp_path / "rules.conf").write_text(rules)
    places = "".join(
        f"{name}_temp_path {tmp_path}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = tmp_path / "nginx.conf"
    main.write_text(
        f"pid {tmp_path}/nginx.pid; error_log {tmp_path}/error.log; daemon off; "
        f"master_process off; events {{}} http {{ {places} include {tmp_path}/rules.conf; }}"
    )
    yield main, port, federation / "superlink" / "ca.crt"
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_nginx_takes_the_rules_and_keeps_metrics_to_itself(proxy):
    main, port, authority = proxy
    checked = subprocess.run([NGINX, "-t", "-c", main], capture_output=True, text=True)
    assert checked.returncode == 0 and "warn" not in checked.stderr, checked.stderr
    running = subprocess.Popen([NGINX, "-c", main])
    try:
        context = ssl.create_default_context(cafile=authority)

        def asked(path: str, **headers: str) -> str:
            url = f"https://localhost:{port}{path}"
            request = urllib.request.Request(url, headers=headers)
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                assert answer.headers["Referrer-Policy"] == "no-referrer"
                return answer.read().decode()

        wait_for_port(port)
        assert asked("/_stcore/health?token=x") == f"/_stcore/health?token=x localhost:{port} "
        assert asked("/_stcore/stream", Upgrade="websocket").endswith("websocket")
        for path in ("/metrics", "/metrics/", "/%6detrics"):
            with pytest.raises(urllib.error.HTTPError, match="403"):
                asked(path)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(urllib.error.URLError):
            asked("/")
    finally:
        running.terminate()
        running.wait()
    assert "token=x" not in "".join(log.read_text() for log in Path(main).parent.glob("*.log"))


def wait_for_port(port: int) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on {port}")


@pytest.mark.parametrize(
    ("objects", "kept"),
    [
        (
            lambda: render_template("superlink.yaml", port=1, version="1"),
            ["populations", "heads", "runs"],
        ),
        (lambda: render_template("node.yaml", name="north", version="1"), ["kept", "data"]),
    ],
    ids=["superlink", "node"],
)
@pytest.mark.parametrize("brought", [False, True], ids=["new", "brought along"])
def test_budgets_and_counts_outlive_a_pod(tmp_path, objects, kept, brought):
    """A pod's folder is in memory: a population's ledger there would be gone with the pod.

    What was spent or counted before there were pods comes along, and later starts leave it.
    """
    (pod,) = (one for one in yaml.safe_load_all(objects()) if one["kind"] == "StatefulSet")
    (first,) = pod["spec"]["template"]["spec"]["initContainers"]
    (tmp_path / "secret").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "deploy.toml").write_text("")
    carried = set(kept) - {"runs", "data"} if brought else set()
    for name in carried:
        (tmp_path / "folder" / name).mkdir()
        (tmp_path / "folder" / name / "count").write_text("2")
    shutil.make_archive(str(tmp_path / "secret" / "folder"), "tar", tmp_path, "folder")
    *shell, script = first["command"]
    for place in ("/fedlens/own", "/secret", "/volumes"):
        script = script.replace(f"{place}", f"{tmp_path}{place}")
    for start in range(2):
        shutil.rmtree(tmp_path / "fedlens", ignore_errors=True)  # with the pod
        subprocess.run([*shell, script], check=True)
        for name in kept:
            count = tmp_path / "fedlens" / "own" / name / "count"
            assert count.exists() == (bool(start) or name in carried), name
            assert not count.exists() or count.read_text() == ("3" if start else "2")
            count.write_text("3")
