"""What `fedlens deploy init` writes: every machine its own, for its owner alone."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from fedlens.client.node.policy import NodePolicy
from fedlens.deploy.certificates import issue_server, make_authority
from fedlens.deploy.initialise import FederationPlan, add_operator, initialise
from fedlens.deploy.keys import UnusableKey, new_node_key, read_public_key
from fedlens.deploy.layout import DeployError, NodeSettings, read_folder, read_role
from fedlens.deploy.services import programs_of
from fedlens.foundation.code_digest import code_sha256
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.secure_sum import Identity, KeyRoster


def private_parts(folder: Path) -> list[bytes]:
    return [
        path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and (path.suffix == ".key" or path.name == "token")
    ]


@pytest.mark.law("deployment: no machine holds another one's secrets")
def test_no_machine_has_another_ones_secrets(written):
    parts = {
        name: private_parts(written / name) for name in ("authority", "superlink", "operators")
    }
    parts |= {
        f"nodes/{name}": private_parts(written / "nodes" / name) for name in ("north", "south")
    }
    assert all(parts.values())
    for owner, secrets in parts.items():
        for place in (*parts, "containers", "kubernetes", "proxy"):
            if place != owner:
                held = b"".join(f.read_bytes() for f in (written / place).rglob("*") if f.is_file())
                assert not any(secret.strip() in held for secret in secrets)


def test_all_of_it_is_for_its_owner_alone(written):
    for path in (written, *written.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_nodes_folder_says_what_it_may_and_what_it_runs(written):
    settings = read_role(written / "nodes" / "south", NodeSettings)
    assert settings.code_sha256 == code_sha256()
    assert settings.node == {
        "partition-id": 1,
        "least-noise-multiplier": 0.5,
        "identity": "node.key",
        "roster": "nodes.pub",
    }
    config = settings.node_config(written / "nodes" / "south")
    assert Path(config["data"]).is_absolute()


def test_files_of_a_nodes_floor_are_named_from_its_folder(written):
    folder = written / "nodes" / "south"
    files = {"identity": "node.key", "roster": "nodes.pub", "members-key-file": "members.key"}
    path = folder / "deploy.toml"
    line = '[node]\nmembers-key-file = "members.key"\n'
    path.write_text(path.read_text().replace("[node]\n", line))
    config = read_folder(folder).node_config(folder)
    assert {key: config[key] for key in files} == {
        key: str((folder / name).absolute()) for key, name in files.items()
    }


def test_nodes_know_each_other_for_secure_sums(written):
    keys = {}
    for name in ("north", "south"):
        folder = written / "nodes" / name
        policy = NodePolicy.of(read_folder(folder).node_config(folder))
        keys[name] = Identity.load(Path(policy.identity)).public
        rosters = KeyRoster.load(Path(policy.roster))
    assert set(keys.values()) == rosters.keys and keys["north"] != keys["south"]


def test_the_keys_are_a_pair_that_flower_takes(written):
    private = (written / "nodes" / "north" / "node.key").read_bytes()
    key = serialization.load_ssh_private_key(private, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    public = key.public_key().public_bytes(encoding, form)
    assert read_public_key(written / "superlink" / "nodes" / "north.pub") == public


def test_a_nodes_own_key_is_taken_and_one_of_another_kind_is_not(tmp_path):
    own = tmp_path / "north.pub"
    own.write_bytes(new_node_key("north").public)
    plan = FederationPlan(nodes=("north",), public_keys={"north": own})
    initialise(tmp_path / "a", plan)
    assert not (tmp_path / "a" / "nodes" / "north" / "node.key").exists()
    assert (tmp_path / "a" / "superlink" / "nodes" / "north.pub").read_bytes() == own.read_bytes()
    openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    own.write_bytes(ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(*openssh))
    with pytest.raises(UnusableKey, match="NIST"):
        initialise(tmp_path / "b", plan)
    own.write_bytes(b"junk")
    with pytest.raises(UnusableKey, match="no OpenSSH"):
        initialise(tmp_path / "b", plan)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ({"nodes": ("../up",)}, "name"),
        ({"nodes": ("a", "a")}, "once"),
        ({"nodes": ()}, "one at least"),
        ({"nodes": ("a",), "operators": ("x y",)}, "name"),
        ({"nodes": ("a",), "public_keys": {"b": Path("b.pub")}}, "no node"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_and_leaves_nothing(tmp_path, plan, word):
    with pytest.raises(DeployError, match=word):
        initialise(tmp_path / "new", FederationPlan(**plan))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ((0, None), "ca.crt: No such file"),
        ((1, b"no certificate"), "server.crt holds no PEM certificate"),
        ((2, None), "server.key: No such file .*; name three PEM files"),
        ((2, b"no key"), "server.key holds no PEM private key: name that of"),
    ],
)
def test_a_certificate_of_ones_own_that_is_none_is_refused_before_a_folder_is_made(
    tmp_path, wrong, said
):
    made = make_authority("own")
    certificate, key = issue_server(made, ["localhost"])
    given = tuple(tmp_path / name for name in ("ca.crt", "server.crt", "server.key"))
    for path, content in zip(given, (made.certificate, certificate, key), strict=True):
        path.write_bytes(content)
    number, content = wrong
    good = given[number].read_bytes()
    given[number].unlink() if content is None else given[number].write_bytes(content)
    plan = FederationPlan(("north",), given=given)
    with pytest.raises(FedlensError, match=said):
        initialise(tmp_path / "f", plan)
    assert not (tmp_path / "f").exists()
    given[number].write_bytes(good)
    initialise(tmp_path / "f", plan)
    assert (tmp_path / "f" / "superlink" / "server.key").read_bytes() == key


def test_a_folder_that_is_in_use_is_left_alone(written):
    with pytest.raises(DeployError, match="other files"):
        initialise(written, FederationPlan(nodes=("north",)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("role = 'king'", "role"),
        ("role = 'node'\nname='a'\nsuperlink='b:1'\nport=0", "port"),
        ("role = 'node'\nname='a'\nsuperlink='b:1'\nmore=1", "more"),
        ("role = 'node'\nname='a'\nsuperlink='b:1'\n[node]\nleast-noise=1", "least-noise"),
        ("role = 'node'\nname='a'\nsuperlink='b:1'\n[node]\nleast-noise-multiplier=-1", "least"),
        ("role = 'node'\nname='a'\nsuperlink='b:1'\n[node]\nunits='record'", "least-noise"),
        ("role", "TOML"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(tmp_path, text, word):
    (tmp_path / "deploy.toml").write_text(text)
    with pytest.raises(DeployError, match=word):
        read_folder(tmp_path)


def test_an_operator_is_added_once(federation):
    made = add_operator(federation, "alice")
    assert (made / "token").stat().st_mode & 0o077 == 0
    assert len((federation / "superlink" / "operators").read_text().splitlines()) == 2
    with pytest.raises(DeployError, match="already"):
        add_operator(federation, "alice")


def test_a_list_of_operators_that_is_none_is_said_in_one_line(federation):
    (federation / "superlink" / "operators").write_bytes(b"\xff\xfe")
    with pytest.raises(DeployError, match="list of operators"):
        add_operator(federation, "second")


def test_files_for_containers_are_read_by_what_reads_them(written):
    compose = yaml.safe_load((written / "containers" / "compose.yaml").read_text())
    assert set(compose["services"]) == {"superlink", "north", "south"}
    kustomization = yaml.safe_load((written / "kubernetes" / "kustomization.yaml").read_text())
    for name in kustomization["resources"]:
        text = (written / "kubernetes" / name).read_text()
        for part in text.split("---\n"):
            kind = yaml.safe_load(part)["kind"]
            assert kind in ("Service", "StatefulSet", "PersistentVolumeClaim")
    for name in ("Dockerfile", "Dockerfile.cuda"):
        text = (written / "containers" / name).read_text()
        assert "$base" not in text and "USER 10001" in text


def test_processes_share_a_secret_and_no_secret_is_on_a_command_line(federation, tmp_path):
    folder = federation / "nodes" / "north"
    settings = read_role(folder, NodeSettings)
    service, apps = programs_of(folder, settings, tmp_path)
    secret = tmp_path / "superexec-secret"
    assert secret.stat().st_mode & 0o077 == 0 and len(secret.read_bytes()) == 32
    for program in (service, apps):
        assert str(secret) in program.command
        assert program.environment["FLWR_TELEMETRY_ENABLED"] == "0"
    words = service.command[service.command.index("--node-config") + 1]
    read = tomllib.loads(words.replace(" ", "\n"))
    assert read["least-noise-multiplier"] == 0.5


def test_a_password_of_the_store_is_named_by_file(federation, tmp_path):
    from fedlens.deploy.layout import SuperLinkSettings

    folder = federation / "superlink"
    (folder / "store-url").write_text("postgresql://fedlens:secret@db/fedlens")
    service, _ = programs_of(folder, read_role(folder, SuperLinkSettings), tmp_path)
    assert service.environment["FEDLENS_RUN_STORE_FILE"] == str(folder / "store-url")
    assert "secret@" not in repr(service) + " ".join(service.command)


def test_a_runs_settings_name_files_of_the_superlinks_folder_and_its_owners_alone(
    federation, tmp_path
):
    from fedlens.deploy.layout import SuperLinkSettings
    from fedlens.server.config.tree import ConfigError
    from fedlens.server.paths import check_paths

    folder = federation / "superlink"
    settings = read_role(folder, SuperLinkSettings).model_copy(update={"paths": ("/srv/shared",)})
    for program in programs_of(folder, settings, tmp_path):
        check_paths({"run.out": "/srv/shared/first"}, program.environment)
        check_paths({"run.out": str(folder / "runs" / "first")}, program.environment)
        with pytest.raises(ConfigError, match="outside the folders"):
            check_paths({"run.settings": 'data.dir = "/srv/other"'}, program.environment)
