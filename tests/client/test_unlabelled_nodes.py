"""Owners whose records have no labels: folders of pictures, and names by a label model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlens.api.nodes import NodePreparation, check_node, prepare_node
from fedlens.cli import main
from fedlens.client.contract import ContractError, parse_contract
from fedlens.client.node.store import open_store
from fedlens.client.preparing.identities import IdentityError
from fedlens.data.dataset import DatasetError
from fedlens.data.registry import load
from fedlens.foundation.errors import WrongUse
from fedlens.models.label_models import make_label_model, read_label_model
from fedlens.models.students import build_student
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import check_run
from fedlens.simulations.federation.apps import simulated_federation

UNLABELLED = 'name = "wards"\nlabels = "none"\n[image]\nside = 16\n'


def picture(path: Path, grey: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((16, 16), grey, np.uint8)).save(path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three people's pictures, one of them with a folder for a day."""
    top = tmp_path / "pictures"
    for place, name in enumerate(("ann", "bob/monday", "eve")):
        for number in range(place + 1):
            picture(top / name / f"{number}.png", 40 * place + number)
    return top


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    path = tmp_path / "federation.toml"
    path.write_text(UNLABELLED)
    return path


def test_folders_of_pictures_are_users_where_nothing_has_labels(
    pictures: Path, contract: Path, tmp_path: Path
) -> None:
    report = prepare_node(pictures, tmp_path / "store", contract)
    assert (report.records, report.users, report.held) == (6, 3, (1, 2, 3))
    assert report.classes == {}
    assert "records are unlabelled" in report.lines()
    assert not any("class " in line for line in report.lines())
    assert any("--format tree" in line for line in report.lines())
    store = open_store(tmp_path / "store")
    assert store.contract.unlabelled
    assert store.users(0).classes == 1
    assert not store.arrays["labels"].any()
    assert check_node(tmp_path / "store")[1] == []


def test_class_folders_can_be_read_without_their_classes(contract: Path, tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for user in ("ann", "bob"):
            picture(tmp_path / "tree" / label / user / "0.png", 3)
    asked = NodePreparation(format="tree")
    report = prepare_node(tmp_path / "tree", tmp_path / "store", contract, asked)
    assert (report.records, report.users) == (4, 2)


def test_pictures_in_one_folder_need_a_word_on_whose_they_are(
    contract: Path, tmp_path: Path
) -> None:
    for number in range(3):
        picture(tmp_path / "flat" / f"{number}.png", number)
    with pytest.raises(DatasetError, match="one-user"):
        prepare_node(tmp_path / "flat", tmp_path / "store", contract)
    asked = NodePreparation(owner="each")
    assert prepare_node(tmp_path / "flat", tmp_path / "store", contract, asked).users == 3


def test_own_labels_are_not_read_where_none_are_agreed(
    pictures: Path, contract: Path, tmp_path: Path
) -> None:
    for asked in (NodePreparation(label="diagnosis"), NodePreparation(mapped={"a": "b"})):
        with pytest.raises(WrongUse, match="leave it out"):
            prepare_node(pictures, tmp_path / "store", contract, asked)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "w"\nlabels = "none"\nclasses = ["a"]', "leave classes out"),
        ('name = "w"\nclasses = ["a"]\nlabels = "some"', "labels"),
        ('name = "w"\nclasses = ["a"]\nleast_confidence = 0.5', "least_confidence"),
        ('name = "w"\nlabels = "own"', "lacks classes"),
    ],
)
def test_contracts_that_say_two_things_are_refused(text: str, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        parse_contract(text, "federation.toml")


def test_a_contract_without_labels_is_read_back_equal() -> None:
    found = parse_contract(UNLABELLED, "federation.toml")
    assert "classes" not in found.to_toml()
    assert parse_contract(found.to_toml(), "again") == found


def test_a_run_says_of_labels_what_the_contract_says(contract: Path) -> None:
    own = Config().updated({"data.name": f"federation:{contract}"})
    with pytest.raises(ConfigError, match=r"data\.labels"):
        check_run(own)
    check_run(own.updated({"data.labels": "none"}))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    network = build_student("cnn", (1, 16, 16), 2)
    path = tmp_path / "model.npz"
    path.write_bytes(make_label_model(network, ("dark", "bright"), "cnn", {}).to_bytes())
    return path


def named_contract(tmp_path: Path, model: Path, least: float = 0.0) -> Path:
    digest = read_label_model(model).digest
    path = tmp_path / "named.toml"
    path.write_text(
        f'name = "wards"\nclasses = ["dark", "bright"]\nlabels = "model:{digest}"\n'
        f"least_confidence = {least}\n[image]\nside = 16\n"
    )
    return path


def test_an_owner_s_machine_names_records_by_the_agreed_label_model(
    pictures: Path, model: Path, tmp_path: Path
) -> None:
    contract = named_contract(tmp_path, model)
    asked = NodePreparation(label_model=model)
    report = prepare_node(pictures, tmp_path / "store", contract, asked)
    store = open_store(tmp_path / "store")
    named, _ = read_label_model(model).name(np.array(store.arrays["images"]))
    assert store.arrays["labels"].tolist() == named.tolist()
    assert sum(report.classes.values()) == 6
    config = Config().updated({"data.name": f"federation:{contract}"})
    check_run(config.updated({"data.labels": f"model:{model}"}))
    with pytest.raises(ConfigError, match=r"data\.labels"):
        check_run(config.updated({"data.labels": "none"}))


def test_records_that_the_label_model_is_not_sure_of_are_left_out(
    pictures: Path, model: Path, tmp_path: Path
) -> None:
    images = np.stack([np.full((1, 16, 16), grey, np.uint8) for grey in (0, 40, 41, 80, 81, 82)])
    sure = np.sort(read_label_model(model).name(images)[1])
    contract = named_contract(tmp_path, model, round(float(sure[2] + sure[3]) / 2, 6))
    asked = NodePreparation(label_model=model)
    with pytest.raises(WrongUse, match="--roster"):  # who is enrolled would tell what they hold
        prepare_node(pictures, tmp_path / "store", contract, asked)
    asked = NodePreparation(label_model=model, roster=tmp_path / "names.txt")
    (tmp_path / "names.txt").write_text("eve\n")
    with pytest.raises(IdentityError, match="lacks users whose records"):
        prepare_node(pictures, tmp_path / "store", contract, asked)
    (tmp_path / "names.txt").write_text("ann\nbob\neve\n")
    report = prepare_node(pictures, tmp_path / "store", contract, asked)
    assert (report.records, report.users) == (3, 3)
    assert report.left_out == {"the label model is not sure enough": 3}


def test_another_label_model_than_the_agreed_one_is_refused(
    pictures: Path, model: Path, contract: Path, tmp_path: Path
) -> None:
    agreed = named_contract(tmp_path, model)
    for federation, asked in (
        (agreed, NodePreparation()),
        (contract, NodePreparation(label_model=model)),
    ):
        with pytest.raises(WrongUse, match="--label-model"):
            prepare_node(pictures, tmp_path / "store", federation, asked)


def test_the_command_prepares_pictures_without_labels(
    pictures: Path, contract: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--federation", str(contract)]
    assert main(["node", "check", str(pictures), *flags]) == 0
    assert main(["node", "prepare", str(pictures), *flags, "--out", str(tmp_path / "store")]) == 0
    assert "records are unlabelled" in capsys.readouterr().out


def test_pictures_and_arrays_without_labels_are_a_simulation_s_data_too(
    pictures: Path, tmp_path: Path
) -> None:
    arrays = {f"{part}_images": np.zeros((9, 16, 16), np.uint8) for part in ("train", "test")}
    np.savez(tmp_path / "arrays.npz", **arrays)
    for number in range(12):
        picture(pictures / f"user{number}" / "0.png", number)
    for name in (f"pictures:{pictures}", f"npz:{tmp_path / 'arrays.npz'}"):
        with pytest.raises(DatasetError, match=r"data.labels = 'none'"):
            load(name)
        config = Config().updated({"data.name": name, "data.labels": "none", "data.users": 4})
        dataset, _ = simulated_federation(config.data, 0)
        assert dataset.classes == 1
    config = Config().updated({"data.name": f"pictures:{pictures}", "data.labels": "none",
                               "data.scheme": "column", "data.users": 4})  # fmt: skip
    assert simulated_federation(config.data, 0)[1].users == 4


def partly(tmp_path: Path, labels: str) -> Path:
    path = tmp_path / "partly.toml"
    path.write_text(
        f'name = "wards"\nclasses = ["dark", "bright"]\nlabels = "{labels}"\n[image]\nside = 16\n'
    )
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six pictures of three people, of whom one has said what three of them show."""
    rows = ["file,label,user"]
    for place, word in enumerate(("dark", "bright", "", "n/a", "", "dark")):
        picture(tmp_path / "table" / f"{place}.png", 40 * place)
        rows.append(f"{place}.png,{word},{'ann' if word in ('dark', 'bright') else 'bob'}")
    (tmp_path / "table" / "manifest.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "table"


def test_records_without_labels_stay_where_that_is_agreed(table: Path, tmp_path: Path) -> None:
    contract = partly(tmp_path, "own-or-none")
    report = prepare_node(table, tmp_path / "store", contract)
    assert (report.records, report.users) == (6, 2)
    assert report.classes == {"dark": 2, "bright": 1}
    assert any("3 records have no label" in line for line in report.lines())
    assert open_store(tmp_path / "store").arrays["labels"].tolist() == [0, 1, -1, -1, -1, 0]
    assert check_node(tmp_path / "store")[1] == []
    config = Config().updated({"data.name": f"federation:{contract}"})
    check_run(config.updated({"data.labels": "own-or-none"}))
    with pytest.raises(ConfigError, match=r"data\.labels"):
        check_run(config)
    own = prepare_node(table, tmp_path / "own", partly(tmp_path, "own"))
    assert own.records == 3


@pytest.mark.parametrize("way", ["{label}/{user}", "{user}/{label}"])
def test_a_folder_in_a_class_s_place_may_say_that_its_pictures_have_none(
    way: str, tmp_path: Path
) -> None:
    top, grey = tmp_path / "pictures", iter(range(6))
    for user in ("ann", "bob"):
        for label in ("dark", "bright", "Unlabelled"):
            picture(top / way.format(label=label, user=user) / "0.png", 40 * next(grey))
    contract = partly(tmp_path, "own-or-none")
    report = prepare_node(top, tmp_path / "store", contract)
    assert (report.records, report.users) == (6, 2)
    assert report.classes == {"dark": 2, "bright": 2}
    assert any("2 records have no label" in line for line in report.lines())
    assert sorted(open_store(tmp_path / "store").arrays["labels"].tolist()) == [-1, -1, 0, 0, 1, 1]
    assert check_node(tmp_path / "store")[1] == []
    own = prepare_node(top, tmp_path / "own", partly(tmp_path, "own"))
    assert own.left_out == {"marked as 'Unlabelled': kept where labels are 'own-or-none' alone": 2}
    assert (own.records, own.users) == (4, 2)


def test_an_agreed_class_may_be_called_like_the_mark(tmp_path: Path) -> None:
    for label in ("dark", "unlabeled"):
        picture(tmp_path / "pictures" / label / "ann" / "0.png", 3)
    contract = tmp_path / "federation.toml"
    contract.write_text(
        'name = "wards"\nclasses = ["dark", "unlabeled"]\nlabels = "own-or-none"\n'
        "[image]\nside = 16\n"
    )
    report = prepare_node(tmp_path / "pictures", tmp_path / "store", contract)
    assert report.classes == {"dark": 1, "unlabeled": 1}


def test_the_label_model_names_those_alone_that_have_no_label(
    table: Path, model: Path, tmp_path: Path
) -> None:
    contract = partly(tmp_path, f"own-or-model:{read_label_model(model).digest}")
    prepare_node(table, tmp_path / "store", contract, NodePreparation(label_model=model))
    store = open_store(tmp_path / "store")
    named, _ = read_label_model(model).name(np.array(store.arrays["images"]))
    assert store.arrays["labels"].tolist() == [0, 1, *named[2:5].tolist(), 0]
    config = Config().updated({"data.name": f"federation:{contract}"})
    check_run(config.updated({"data.labels": f"own-or-model:{model}"}))
    with pytest.raises(ConfigError, match=r"data\.labels"):
        check_run(config.updated({"data.labels": f"model:{model}"}))
