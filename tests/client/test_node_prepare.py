"""An owner's records become a node's store: what is mapped, hashed, left out, refused."""

from __future__ import annotations

import json
import os
import stat
from types import SimpleNamespace

import layouts
import numpy as np
import pytest

from fedlens.client.contract import FederationContract
from fedlens.client.node import file, store
from fedlens.client.node.file import open_node_users
from fedlens.client.node.members import members_of
from fedlens.client.node.slices import in_slice
from fedlens.client.node.store import open_store
from fedlens.client.preparing.checking import store_faults
from fedlens.client.preparing.identities import (
    IdentityError,
    fingerprint,
    kept_secret,
    own_number,
    read_fingerprints,
    read_secret,
    shared_fingerprints,
)
from fedlens.client.preparing.intake import Preparation, PrepareError
from fedlens.client.preparing.labels import AgreedNames, parse_map
from fedlens.client.preparing.prepare import look_through, prepare
from fedlens.client.train import train
from fedlens.client.users.protocol import NodeDataError
from fedlens.data.formats.formats import open_source
from fedlens.data.formats.records import SourceError
from fedlens.foundation.errors import WrongUse

KEY, SHARED = b"k" * 32, b"s" * 32


def contract(**changes):
    given = {"name": "ward-7", "classes": ("cat", "dog"), "image": {"side": 16, "colour": True}}
    return FederationContract.model_validate({**given, **changes})


@pytest.fixture
def folder(tmp_path):
    """Two classes, two people, three pictures each; a manifest with their ward."""
    rows, found = ["file,label,user,ward,sex"], layouts.pictures(12, 24, 3)
    place = tmp_path / "pictures"
    place.mkdir()
    for i, one in enumerate(found):
        (place / f"{i}.png").write_bytes(layouts.png(one))
        label, user = ("Cat", "DOG")[i % 2], ("ann", "bob", "cy")[i % 3]
        rows.append(f"{i}.png,{label},{user},{i % 3},{'fm'[i % 2]}")
    (place / "manifest.csv").write_text("\n".join(rows) + "\n")
    return place


def made(folder, out, agreed=None, columns=None, **how):
    wanted = Preparation(agreed or contract(), KEY, **how)
    return prepare(open_source(folder, **(columns or {})), wanted, out)


def opened(out):
    return open_node_users(SimpleNamespace(run_config={}, node_config={"data": str(out)}))


def test_what_a_node_opens_is_what_the_owner_has(folder, tmp_path):
    report = made(folder, tmp_path / "store")
    users = opened(tmp_path / "store")
    assert (report.records, report.users, report.classes) == (12, 3, {"cat": 6, "dog": 6})
    assert users.shape == (3, 16, 16)
    assert users.classes == 2
    ids = [users.user_id(place) for place in range(3)]
    assert ids == sorted(own_number(KEY, name) for name in ("ann", "bob", "cy"))
    found = layouts.pictures(12, 24, 3)
    place = ids.index(own_number(KEY, "bob"))
    data = users.user(place)
    assert data.labels.tolist() == [1, 0, 1, 0]
    from PIL import Image

    from fedlens.data.labelled.pictures import squared

    wanted = np.stack([squared(Image.fromarray(found[i]), 16, 3) for i in (1, 4, 7, 10)])
    assert np.array_equal(((data.images.numpy() + 1) * 127.5).round().astype(np.uint8), wanted)
    assert users.user(place, np.array([2])).labels.tolist() == [1]
    assert opened(tmp_path / "store") is users


@pytest.mark.law("4: a prepared store names no one")
def test_the_store_holds_no_name_and_others_may_not_look_into_it(folder, tmp_path):
    made(folder, tmp_path / "store", owners_secret=SHARED)
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
    whole = b"".join(path.read_bytes() for path in (tmp_path / "store").iterdir())
    assert b"ann" not in whole and b"bob" not in whole
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".store")]


def test_more_records_leave_everyones_number_as_it_was(folder, tmp_path):
    made(folder, tmp_path / "one")
    lines = (folder / "manifest.csv").read_text().splitlines()
    (folder / "manifest.csv").write_text("\n".join([*lines, "0.png,cat,dora,1,f"]) + "\n")
    lines = (folder / "manifest.csv").read_text().replace("0.png,cat,dora", "x,cat,dora")
    (folder / "x").write_bytes((folder / "0.png").read_bytes())
    (folder / "manifest.csv").write_text(lines)
    made(folder, tmp_path / "two")
    ids = [set(open_store(tmp_path / name).arrays["ids"].tolist()) for name in ("one", "two")]
    assert ids[0] < ids[1] and len(ids[1]) == 4


def test_images_and_columns_stay_on_the_disk(folder, tmp_path):
    made(folder, tmp_path / "store")
    users = opened(tmp_path / "store")
    for array in (users.images, users.labels, users.indices, users.offsets, users.ids):
        assert isinstance(array, np.memmap)


def test_a_label_that_is_not_agreed_is_refused_with_the_fix(folder, tmp_path):
    agreed = contract(classes=("cat", "horse"))
    with pytest.raises(PrepareError, match=r"labels 'DOG' \(6\).*line 3 \(1.png\).*--map OWN="):
        made(folder, tmp_path / "store", agreed)
    assert not (tmp_path / "store").exists()
    report = made(folder, tmp_path / "store", agreed, mapped={"DOG": "-"})
    assert report.classes == {"cat": 6, "horse": 0}
    assert report.left_out == {"label 'DOG', as --map says": 6}
    report = made(folder, tmp_path / "other", agreed, mapped={"DOG": "horse"})
    assert report.classes == {"cat": 6, "horse": 6}


def test_names_are_the_same_whatever_their_capitals_and_dashes():
    names = AgreedNames(["Ankle boot", "T-shirt", "t shirt"], {"shoe": "Ankle boot", "bag": "-"})
    assert [names.number(n) for n in ("ankle_BOOT", "T-shirt", "t shirt", "shoe", "bag")] == [
        0, 1, 2, 0, None,
    ]  # fmt: skip
    with pytest.raises(KeyError):  # either of two
        names.number("T SHIRT")
    with pytest.raises(WrongUse, match="'hat' is not among the agreed names"):
        AgreedNames(["cat"], {"x": "hat"})
    with pytest.raises(WrongUse, match="there twice"):
        parse_map(["a=b", "a=c"])
    with pytest.raises(WrongUse, match="write OWN=AGREED"):
        parse_map(["a"])


@pytest.mark.law("6: bad files are found while preparing")
def test_what_cannot_be_decoded_is_named_counted_and_left_out(folder, tmp_path):
    (folder / "0.png").write_bytes(b"no picture")
    (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:60])
    (folder / "2.png").unlink()
    os.mkfifo(folder / "2.png")  # reading it would wait for ever
    report = made(folder, tmp_path / "store")
    assert report.records == 9
    assert report.left_out == {
        "no picture of a known kind, whatever its name says": 1,
        "a picture that cannot be decoded": 1, "no plain file": 1,
    }  # fmt: skip
    listed = (tmp_path / "store" / "left-out.csv").read_text().splitlines()
    assert [line.partition(" (")[0] for line in listed[1:]] == [
        f"manifest.csv line {line}" for line in (2, 3, 4)
    ]
    assert any("left out, a picture that cannot be decoded: 1: manifest.csv line 3" in line
               for line in report.lines())  # fmt: skip


def test_nothing_that_is_left_is_refused(folder, tmp_path):
    for path in folder.glob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(PrepareError, match=r"no record is left.*12 left out"):
        made(folder, tmp_path / "store")
    listed = tmp_path / "store.left-out.csv"
    assert sorted(tmp_path.iterdir()) == [folder, listed]
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600
    assert listed.read_text().count("an empty file") == 12


def test_attributes_are_those_agreed(folder, tmp_path):
    agreed = contract(
        sensitive={"attribute": "sex", "values": ["m", "f"]}, declared={"ward": ["0", "1"]}
    )
    report = made(folder, tmp_path / "store", agreed)
    assert report.left_out == {"a value of ward that is not agreed": 4}
    users = opened(tmp_path / "store")
    assert (users.sensitive_attribute, users.sensitive_classes) == ("sex", 2)
    assert sorted(users.declared["ward"].tolist()) == ["0", "1"]
    data = users.user(0)
    assert (data.sensitive == 1 - data.labels).all()  # cats are f, dogs m
    with pytest.raises(SourceError, match=r"no column 'age'.*--sensitive"):
        made(folder, tmp_path / "x", contract(sensitive={"attribute": "age", "values": ["1", "2"]}))


def test_a_slice_of_a_store_is_of_the_users_who_declare_it(folder, tmp_path):
    made(folder, tmp_path / "store", contract(declared={"ward": ["0", "1", "2"]}))
    node = {"data": str(tmp_path / "store")}
    users = open_node_users(SimpleNamespace(run_config={"data.slice": "ward=1"}, node_config=node))
    assert len(users) == 1
    assert users.user_id(0) == own_number(KEY, "bob")
    assert users.origin.federation == "ward-7"


def test_a_roster_says_on_which_slice_users_are_with_or_without_records(folder, tmp_path):
    agreed, roster = contract(declared={"ward": ["0", "1", "9"]}), tmp_path / "roster.txt"
    roster.write_text("ann\tward=9\ndora\tward=9\nbob\n")
    made(folder, tmp_path / "store", agreed, roster=roster)
    found = open_store(tmp_path / "store").users(0)
    held = {found.held(place) > 0 for place in np.flatnonzero(found.declared["ward"] == "9")}
    assert (found.declared["ward"] == "9").sum() == 2 and held == {True, False}
    roster.write_text("ann\tward=8\n")
    with pytest.raises(IdentityError, match="'ward=8' is not agreed"):
        made(folder, tmp_path / "other", agreed, roster=roster)


def test_a_roster_enrols_who_has_no_records(folder, tmp_path):
    (tmp_path / "roster.txt").write_text("ann\n\ndora\nbob\ncy\n")
    report = made(folder, tmp_path / "store", roster=tmp_path / "roster.txt")
    assert (report.users, report.held) == (4, (0, 4, 4))
    users = opened(tmp_path / "store")
    place = [users.user_id(k) for k in range(4)].index(own_number(KEY, "dora"))
    assert users.held(place) == 0 and len(users.user(place).labels) == 0


@pytest.mark.law("1: a person counts once")
def test_users_of_two_nodes_are_found_and_left_out(folder, tmp_path):
    made(folder, tmp_path / "a", owners_secret=SHARED)
    text = (folder / "manifest.csv").read_text().replace(",ann,", ",eve,").replace(",cy,", ",cy ,")
    (folder / "manifest.csv").write_text(text)
    made(folder, tmp_path / "b", owners_secret=SHARED)
    lists = [tmp_path / name / "fingerprints.bin" for name in "ab"]
    assert len(read_fingerprints(lists[0])) == 3
    found = set(shared_fingerprints(*lists))
    assert found == {fingerprint(SHARED, "ward-7", name) for name in ("bob", "cy")}
    report = made(folder, tmp_path / "c", owners_secret=SHARED, without=lists[0])
    assert report.users == 1
    assert report.left_out == {"a user of the other node": 8}
    assert not set(shared_fingerprints(lists[0], tmp_path / "c" / "fingerprints.bin"))
    with pytest.raises(WrongUse, match="needs --owners-secret"):
        made(folder, tmp_path / "d", without=lists[0])
    with pytest.raises(IdentityError, match="no list of fingerprints"):
        read_fingerprints(folder / "manifest.csv")
    with pytest.raises(IdentityError, match=r"name another owner's fingerprints\.bin"):
        read_fingerprints(folder / "nowhere.bin")
    with pytest.raises(IdentityError, match="`fedlens node secret` makes"):
        read_secret(folder / "nowhere.secret")


def test_a_person_has_one_members_number_at_nodes_of_one_owners_secret(folder, tmp_path):
    """Stores hash names under secrets of their own, so their ids can never meet."""
    key, roster = tmp_path / "members.key", tmp_path / "enrolled"
    key.write_bytes(bytes(range(32)))
    roster.write_text("ann\nbob\ncy\nzoe\n")
    numbers = []
    for name, own, shared in (("a", b"a", SHARED), ("b", b"b", SHARED), ("c", b"c", None)):
        wanted = Preparation(contract(), own * 32, owners_secret=shared, roster=roster)
        prepare(open_source(folder), wanted, tmp_path / name)
        users = opened(tmp_path / name)
        packed = members_of(users, {"members-key-file": str(key)})
        numbers.append({packed[i : i + 8] for i in range(0, len(packed), 8)})
        assert len(users) == 4 and not store_faults(tmp_path / name)
    assert len(numbers[0]) == 4 and numbers[0] == numbers[1]
    assert not numbers[0] & numbers[2]
    agreed = contract(declared={"ward": ("0", "1", "2")})
    wanted = Preparation(agreed, b"d" * 32, owners_secret=SHARED)
    prepare(open_source(folder), wanted, tmp_path / "d")
    whole = opened(tmp_path / "d")
    one = in_slice(whole, "ward=1")
    assert one.people.tolist() == whole.people[whole.declared["ward"] == "1"].tolist()
    assert len(one) == 1


def test_another_federation_or_secret_has_other_fingerprints():
    one = fingerprint(SHARED, "a", "ann")
    assert one == fingerprint(SHARED, "a", " ann")
    assert one not in (fingerprint(KEY, "a", "ann"), fingerprint(SHARED, "b", "ann"))
    assert own_number(KEY, "e\u0301") == own_number(KEY, "\u00e9")


def test_a_secret_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "secret"
    secret = kept_secret(path)
    assert kept_secret(path) == secret and len(secret) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with pytest.raises(IdentityError, match="chmod 600"):
        kept_secret(path)
    path.chmod(0o600)
    path.write_text("abc")
    with pytest.raises(IdentityError, match="64 hexadecimal digits"):
        kept_secret(path)


def test_a_folder_that_is_taken_is_left_alone(folder, tmp_path):
    made(folder, tmp_path / "store")
    before = (tmp_path / "store" / "store.json").read_bytes()
    source, wanted = open_source(folder), Preparation(contract(), b"x" * 32)
    with pytest.raises(PrepareError, match="--replace a store"):
        prepare(source, wanted, tmp_path / "store")
    assert (tmp_path / "store" / "store.json").read_bytes() == before
    prepare(source, wanted, tmp_path / "store", replace=True)
    assert (tmp_path / "store" / "store.json").read_bytes() != before
    with pytest.raises(PrepareError, match="something else in it"):
        prepare(source, wanted, folder, replace=True)


def test_a_look_keeps_nothing(folder, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    report = look_through(open_source(folder), Preparation(contract(), KEY))
    assert report.records == 12
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_test_parts_stay_out_unless_they_are_asked_for(tmp_path):
    layouts.medmnist(tmp_path / "m.npz")
    source = open_source(tmp_path / "m.npz", owner="each")
    agreed = contract(classes=("0", "1", "2"))
    report = prepare(source, Preparation(agreed, KEY), tmp_path / "a")
    assert (report.records, report.users) == (4, 4)
    assert sum(report.left_out.values()) == 2
    assert prepare(source, Preparation(agreed, KEY, whole=True), tmp_path / "b").records == 6


def test_a_store_that_was_changed_is_found_out(folder, tmp_path):
    out = tmp_path / "store"
    made(folder, out)
    assert store_faults(out, contract()) == []
    assert "another contract" in store_faults(out, contract(records_per_user=7))[0]
    out.chmod(0o755)
    assert "chmod 700" in store_faults(out)[0]
    out.chmod(0o700)
    labels = np.load(out / "labels.npy")
    labels[3] = 9
    np.save(out / "labels.npy", labels)
    found = " ".join(store_faults(out))
    assert "labels.npy: was changed" in found and "outside 0..1" in found


@pytest.mark.parametrize("name", ["images", "labels", "people"])
def test_a_node_does_not_answer_from_a_changed_store(folder, tmp_path, monkeypatch, name):
    """Neither where it was changed before it was first opened nor where it was after."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    out = tmp_path / "store"
    made(folder, out, owners_secret=SHARED)
    array = out / f"{name}.npy"
    whole = array.read_bytes()
    array.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(NodeDataError, match=f"{name}.npy: was changed since it was prepared"):
        opened(out)
    array.write_bytes(whole)
    assert len(opened(out)) == 3
    array.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(NodeDataError, match=f"{name}.npy: was changed since it was prepared"):
        opened(out)


def test_a_store_is_read_whole_once(folder, tmp_path, monkeypatch):
    """By whichever of a node's processes comes first: each message comes to a new one."""
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    made(folder, tmp_path / "store")
    opened(tmp_path / "store")
    file._opened_users.cache_clear()
    file._users_in_slice.cache_clear()
    monkeypatch.setattr(store, "changed_files", lambda _: pytest.fail("read again"))
    assert len(opened(tmp_path / "store")) == 3


@pytest.mark.parametrize("name", ["images", "labels", "index", "offsets", "ids"])
def test_a_damaged_store_is_one_error_and_never_a_crash(folder, tmp_path, name):
    out = tmp_path / "store"
    made(folder, out)
    file = out / f"{name}.npy"
    whole = file.read_bytes()
    for content in (b"", whole[:40], whole[:-3], b"\x93NUMPY\x01\x00v\x00{'descr': '|O'"):
        file.write_bytes(content)
        assert len(store_faults(out)) == 1
        with pytest.raises(NodeDataError):
            open_store(out)


def test_store_json_names_no_file_elsewhere(folder, tmp_path):
    out = tmp_path / "store"
    made(folder, out)
    facts = json.loads((out / "store.json").read_text())
    (out / "store.json").write_text(json.dumps({**facts, "files": {"../x": "0"}}))
    with pytest.raises(NodeDataError, match=r"names a file '\.\./x'"):
        open_store(out)
    (out / "store.json").write_text("[" * 100_000)
    with pytest.raises(NodeDataError, match="is damaged"):
        open_store(out)
    (out / "store.json").unlink()
    with pytest.raises(NodeDataError, match="not prepared to the end"):
        open_store(out)


def test_a_store_trains_like_the_same_users_in_an_npz(folder, tmp_path, make_request):
    made(folder, tmp_path / "store")
    store = open_store(tmp_path / "store")
    arrays = store.arrays
    order = arrays["index"]
    owners = np.empty(12, np.int64)
    owners[order] = np.repeat(arrays["ids"], np.diff(arrays["offsets"]))
    np.savez(
        tmp_path / "users.npz", images=arrays["images"], labels=arrays["labels"], users=owners,
        classes=2,
    )  # fmt: skip
    request = make_request(0, 2, kind="frozen", enrolled=3)
    one = train(opened(tmp_path / "store"), request)
    other = train(opened(tmp_path / "users.npz"), request)
    assert np.array_equal(one.total, other.total)
    assert float(np.abs(one.total).max()) > 0
