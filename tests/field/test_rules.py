"""The rules by which pictures, folders and names are taken, each once."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pydicom
import pytest
from looking import DRAWN, REFUSED, Case, at_node, in_simulation
from making import CONTRACT, draw, tree
from PIL import Image
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian, generate_uid

from fedlens.client.node.store import open_store
from fedlens.data.formats.decoding import pixels_of
from fedlens.data.formats.records import known_part, whole_part
from fedlens.data.labelled.pictures import UnreadablePictureError, scaled_to_bytes


@pytest.fixture
def place(tmp_path):
    """A folder with a contract, and an empty ``data``."""
    (tmp_path / "federation.toml").write_text(CONTRACT.format(colour="false"))
    (tmp_path / "data").mkdir()
    return tmp_path


def node(place, command="data"):
    return at_node(Case("own", command, "", "", "", "", "", ""), place, place / "store")


def simulation(place, reader="tree:data"):
    return in_simulation(Case("own", "", "", reader, "", "", "", ""), place)


def scan(path, pixels, *, preamble=True, **tags):
    """A DICOM file of pixels [h, w] or [h, w, 3]."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian if preamble else ImplicitVRLittleEndian
    data = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    data.SOPClassUID, data.SOPInstanceUID = (
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID,
    )  # fmt: skip
    data.Rows, data.Columns = pixels.shape[:2]
    bits = 8 * pixels.dtype.itemsize
    data.BitsAllocated, data.BitsStored, data.HighBit = bits, bits, bits - 1
    data.PixelRepresentation = int(pixels.dtype.kind == "i")
    data.SamplesPerPixel = pixels.shape[2] if pixels.ndim == 3 else 1
    data.PhotometricInterpretation = "RGB" if pixels.ndim == 3 else "MONOCHROME2"
    if pixels.ndim == 3:
        data.PlanarConfiguration = 0
    data.PatientID = "p0"
    for name, value in tags.items():
        setattr(data, name, value)
    data.PixelData = pixels.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if preamble:
            data.save_as(path, enforce_file_format=True)
        else:
            del data.file_meta
            data.preamble = None
            data.save_as(path, implicit_vr=True, little_endian=True)
    return path


def test_colours_of_dicom_are_converted_once():
    tests = Path(pydicom.__file__).parent / "data" / "test_files"
    plain = np.moveaxis(pixels_of(tests / "SC_rgb_rle.dcm", "x", 100, 3), 0, 2).astype(int)
    assert plain[5, 50].tolist() == [255, 0, 0]
    others = (
        "SC_ybr_full_422_uncompressed.dcm", "SC_rgb_jpeg_dcmtk.dcm", "SC_rgb_dcmtk_+eb+cy+np.dcm",
        "SC_rgb_rle_16bit.dcm", "SC_rgb_rle_32bit.dcm",
    )  # fmt: skip
    for name in others:
        seen = np.moveaxis(pixels_of(tests / name, name, 100, 3), 0, 2).astype(int)
        assert np.abs(seen - plain).mean() <= 4, name


def test_places_that_are_padded_have_no_say_in_the_grey_scale_of_a_scan(tmp_path):
    body = np.where(DRAWN["cat"] > 100, 60, -30).astype(np.int16)
    body[:8] = -2000
    path = scan(tmp_path / "x.dcm", body, PixelPaddingValue=-2000)
    seen = pixels_of(path, "x", 64, 1)[0]
    assert set(np.unique(seen)) == {0, 255}
    assert (seen[8:] == 255).sum() == (body == 60).sum()


def test_a_palette_gives_colours(tmp_path):
    indices = (DRAWN["dog"] > 90).astype(np.uint8)
    ramp = np.array([0, 65535], "<u2")
    tables = {
        f"{name}PaletteColorLookupTableData": (ramp * one).astype("<u2").tobytes()
        for name, one in (("Red", 1), ("Green", 0), ("Blue", 1))
    }
    for name in ("Red", "Green", "Blue"):
        tables[f"{name}PaletteColorLookupTableDescriptor"] = [2, 0, 16]
    path = scan(tmp_path / "x.dcm", indices, PhotometricInterpretation="PALETTE COLOR", **tables)
    seen = pixels_of(path, "x", 64, 3)
    assert np.array_equal(seen[0], 255 * indices) and not seen[1].any()


def test_dicom_is_told_by_its_bytes(place):
    for label in ("cat", "dog"):
        for user in range(3):
            values = 10 * DRAWN[label].astype(np.uint16)
            named = ("IM0001", "scan.dcm", "old.dcm")[user]
            scan(place / "data" / label / f"mrn{user}" / named, values,
                 preamble=named != "old.dcm", PatientID=f"mrn{user}")  # fmt: skip
    (place / "data" / "DICOMDIR.txt").write_text("no scan")
    found = node(place)
    assert (found.held, found.misdrawn) == ("cat 3, dog 3 of 3", 0)


def test_each_frame_is_a_record_where_asked(place):
    for label in ("cat", "dog"):
        frames = np.stack([DRAWN[label].astype(np.uint16)] * 3)
        path = place / "data" / label / "x.dcm"
        scan(path, frames[0], NumberOfFrames=3)
        data = pydicom.dcmread(path)
        data.PixelData = frames.tobytes()
        data.save_as(path)
    assert node(place).meets("cat 1, dog 1 of 1 | of several frames or pages the first") == ""
    case = Case("own", "data --each-frame", "", "", "", "", "", "")
    assert at_node(case, place, place / "all").held == "cat 3, dog 3 of 1"


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        (np.array([0, 255], np.uint16), [0, 255]),
        (np.array([0, 1023], np.uint16), [0, 255]),
        (np.array([0, 2000, 4095], np.uint16), [0, 125, 255]),
        (np.array([0, 32768, 65535], np.int32), [0, 128, 255]),
        (np.array([-1000, 0, 1000], np.int32), [0, 128, 255]),
        (np.array([0.0, 0.5], np.float32), [0, 128]),
        (np.array([-3.0, 0.0, 3.0], np.float32), [0, 128, 255]),
        (np.array([7.0, 7.0], np.float32), [0, 0]),
    ],
)
def test_more_than_eight_bits_are_scaled_by_the_picture_alone(values, seen):
    assert scaled_to_bytes(values).tolist() == seen


def test_values_that_are_no_numbers_are_no_picture():
    with pytest.raises(UnreadablePictureError, match="no numbers"):
        scaled_to_bytes(np.array([0.0, np.nan]))


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("Training_Set", "train"), ("train2017", "train"), ("images-train", "train"),
        ("VALID", "validation"), ("dev", "validation"), ("val_images", "validation"),
        ("Testing", "test"), ("evaluation", "test"), ("trainer", ""), ("steam train", ""),
        ("test tube", ""),
    ],
)  # fmt: skip
def test_a_folder_is_a_part_where_its_whole_name_says_so(name, part):
    assert whole_part(name) == part


def test_a_shard_is_of_the_part_that_a_word_of_its_name_says():
    assert known_part("imagenet-train-000012.tar") == "train"
    assert known_part("shard-000.tar.gz") == ""


def test_one_rule_holds_for_a_validation_part_everywhere(place):
    tree(place / "data" / "Train", users=3)
    tree(place / "data" / "valid", users=1)
    rows = ["file,label,user,split"]
    for file in sorted((place / "data").rglob("*.png")):
        part, label, user, _ = file.relative_to(place / "data").parts
        rows.append(f"data/{file.relative_to(place / 'data')},{label},{user},{part.upper()}")
    (place / "manifest.csv").write_text("\n".join(rows))
    for reader in ("tree:data", "image-folder:flat", "manifest:manifest.csv"):
        if reader.endswith("flat"):
            for file in sorted((place / "data").rglob("*.png")):
                part, label, user, name = file.relative_to(place / "data").parts
                draw(place / "flat" / part / label / f"{user}-{name}", label)
        seen = simulation(place, reader)
        assert seen.meets("cat 8, dog 8 | validation part takes its place") == "", reader
    for source in ("data", "manifest.csv"):
        case = Case("own", source, "", "", "", "", "", "")
        assert at_node(case, place, place / f"s-{source}").held == "cat 6, dog 6 of 3"
    tree(place / "data" / "test", users=2)
    seen = simulation(place)
    assert seen.meets("cat 10, dog 10 | 4 left out, of the part 'validation'") == ""


def test_users_whose_names_look_alike_are_told_and_stay_apart(place):
    for user in ("12", "012", "12.0", "Ann", "ann", "bob"):
        draw(place / "data" / "cat" / user / "0.png", "cat")
    found = node(place)
    assert found.held == "cat 6 of 6"
    assert "look alike count as different people: 2: '012' and '12' and '12.0'" in found.said
    assert "bob" not in found.said


def test_copies_and_labels_that_contradict_each_other_are_counted(place):
    tree(place / "data", users=1, each=1)
    for name in ("twice.png", "other.png"):
        label = "dog" if name == "other.png" else "cat"
        draw(place / "data" / label / "subj-1" / name, "cat")
    said = node(place).said
    assert "copies of another record, pixel for pixel: 2 (1 under another label" in said


def test_masks_beside_pictures_are_no_records(place):
    tree(place / "data", users=2)
    for file in sorted((place / "data").rglob("0.png")):
        Image.fromarray(np.eye(64, dtype=np.uint8)).save(file.with_name("0_mask.png"))
    found = node(place)
    assert found.meets("cat 4, dog 4 of 2 | a mask of a picture beside it: 4") == ""


def test_what_was_left_out_is_listed_where_nothing_is_left(place):
    for label in ("cat", "dog"):
        path = place / "data" / label / "u" / "x.heic"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"some")
    found = node(place)
    assert found.held == REFUSED and "store.left-out.csv" in found.said
    with (place / "store.left-out.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["where", "why"],
        *([f"{label}/u/x.heic", ".heic, which is not read; make it JPEG or PNG"]
          for label in ("cat", "dog")),
    ]  # fmt: skip


def test_every_record_that_is_left_out_is_listed_those_of_other_parts_too(place):
    tree(place / "data" / "train", users=2)
    tree(place / "data" / "test", users=1)
    node(place)
    with (place / "store" / "left-out.csv").open(newline="") as file:
        assert [row[1] for row in list(csv.reader(file))[1:]] == [
            "of the part 'test' (--whole takes all)"
        ] * 4


def test_a_user_in_a_name_is_found_by_the_owners_expression(place):
    for label in ("cat", "dog"):
        for user in (1, 12):
            draw(place / "data" / label / f"person{user}_{label}_3.png", label)
    draw(place / "data" / "cat" / "nobody.png", "cat")
    found = node(place, r"data --user-from-name 'person(\d+)'")
    assert found.meets("cat 2, dog 2 of 2 | no user in its name (--user-from-name): 1") == ""
    refused = node(place, "data --user-from-name 'person('")
    assert refused.held == REFUSED and "is no regular expression" in refused.said
    both = node(place, "data --one-user --user-from-name x")
    assert both.held == REFUSED and "leave the other such flag out" in both.said


def test_a_simulation_of_few_people_keeps_one_for_the_test(place):
    tree(place / "data", users=2)
    from fedlens.data.registry import load

    found = load(f"tree:{place / 'data'}")
    assert len(found.train_labels) == len(found.test_labels) == 4


def scans(place, where):
    """Scans of three patients, of each class one, each at ``where(label, patient)``."""
    for label in ("cat", "dog"):
        for patient in ("p1", "p2", "p3"):
            values = 10 * DRAWN[label].astype(np.uint16)
            scan(place / "data" / where(label, patient), values, PatientID=patient)


def test_scans_lie_by_class_or_by_patient(place):
    scans(place, lambda label, patient: f"{patient}/{label}/IM1")
    found = node(place)
    assert (found.held, found.misdrawn) == ("cat 3, dog 3 of 3", 0)
    assert simulation(place, "dicom:data").meets("cat 3, dog 3") == ""


def test_scans_without_a_class_ask_for_it_and_are_not_called_as_their_folder_is(place):
    scans(place, lambda label, patient: f"{label}{patient}")
    for found in (node(place), simulation(place, "dicom:data")):
        assert found.meets("refused | which column is the label? name it with --label") == ""


@pytest.mark.parametrize(
    ("layout", "held", "users"),
    [
        ("{label}/images/{user}_0.png", "cat 3, dog 3", "--user-from-name '/(u.)_'"),
        ("archive/archive/{label}/{user}/0.png", "cat 3, dog 3", ""),
        ("{user}/study/{label}/0.png", "cat 3, dog 3", ""),
        ("data/Training/{label}/{user}/0.png", "cat 3, dog 3", ""),
    ],
)
def test_folders_are_read_as_they_lie(place, layout, held, users):
    for label in ("cat", "dog"):
        for user in ("u1", "u2", "u3"):
            draw(place / "data" / layout.format(label=label, user=user), label)
    found = node(place, f"data {users}")
    assert (found.held, found.misdrawn) == (f"{held} of 3", 0)
    assert simulation(place).held == held


def test_a_lone_test_part_is_not_trained_on(place):
    tree(place / "data" / "test")
    assert node(place).meets("refused | 12 left out: of the part 'test'") == ""
    assert simulation(place).meets("refused | no record to train on") == ""


@pytest.mark.parametrize("name", ["others", "unlabeled"])  # with classes in it: it has labels
def test_folders_beside_the_parts_are_left_out_and_counted(place, name):
    tree(place / "data" / "train")
    tree(place / "data" / name)
    assert node(place).meets(f"cat 6, dog 6 of 3 | in '{name}', beside the parts: 12") == ""


def test_what_lies_unlabelled_beside_the_parts_waits_for_a_contract_that_takes_it(place):
    tree(place / "data" / "train")
    draw(place / "data" / "unlabeled" / "subj-4" / "1.png", "cat")
    why = "marked as 'unlabeled': kept where labels are 'own-or-none' alone"
    assert node(place).meets(f"cat 6, dog 6 of 3 | {why}") == ""
    contract = place / "federation.toml"
    contract.write_text('labels = "own-or-none"\n' + contract.read_text())
    partly = Case("own", "data", "", "", "", "", "", "")
    at_node(partly, place, place / "partly")
    store = open_store(place / "partly")
    assert store.facts.users == 4
    assert sorted(store.arrays["labels"].tolist()) == [-1, *6 * [0], *6 * [1]]


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("https://x.org/img/{}.png", "an address of another machine"),
        ("/mnt/nas/img/{}.png", "leads out of the folder"),
        ("C:\\img\\{}.png", "a path of a Windows machine"),
        ("none/{}.png", "no such file"),
    ],
)
def test_a_file_that_is_not_there_is_named_with_the_reason(place, named, why):
    rows = ["file,label,user"]
    for number in range(4):
        draw(place / "data" / "img" / f"{number}.png", "cat")
        rows.append(f"{named.format(number)},cat,u{number}")
    (place / "data" / "m.csv").write_text("\n".join(rows))
    for found in (node(place), simulation(place, "manifest:data")):
        assert found.meets(f"refused | 4 left out | {why}") == "", found


@pytest.mark.parametrize("named", ["{}", "img/{}.png", "IMG\\{}.PNG", "./img//{}.png"])
def test_files_are_found_below_a_tables_folder_or_the_one_above(place, named):
    rows = ["file,label,user"]
    for number in range(4):
        draw(place / "data" / "all" / "img" / f"{number}.png", "cat")
        rows.append(f"{named.format(number)},cat,u{number}")
    draw(place / "data" / "all" / "img" / "extra.png", "dog")
    (place / "data" / "tables").mkdir()
    (place / "data" / "tables" / "m.csv").write_text("\n".join(rows))
    found = node(place)
    assert found.meets("cat 4 of 4 | 1 pictures below data are named by no row of m.csv") == ""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("notes.csv", "date,remark\n1,2\n"),
        ("manifest.csv", "when,what\n1,2\n"),
        ("all_data.json", '{"users": ["a"], "num_samples": [1], "user_data": {}}'),
        ("dataset_info.json", "{}"),
        ("train-000.tar", "no shard"),
        ("train-images.idx3-ubyte", "no pictures"),
        ("data_batch_1.bin", "no pictures"),
        ("x_32x32.mat", "no pictures"),
        ("scan.dcm", "no scan"),
    ],
)
def test_what_lies_beside_a_tree_of_pictures_makes_it_nothing_else(place, name, content):
    tree(place / "data")
    (place / "data" / name).write_text(content)
    found = node(place)
    ending = "." + name.rpartition(".")[2]
    assert found.meets(f"cat 6, dog 6 of 3 | {ending}") == ""


def test_usual_columns_and_parts_are_known_in_any_capitals(place):
    rows = ["File Name,LABEL,Patient ID,Split"]
    for number in range(6):
        draw(place / "data" / "img" / f"{number}.png", "cat")
        part = ("TRAIN", "nan", "Valid")[number % 3]
        rows.append(f"img/{number}.png,cat,u{number},{part}")
    (place / "data" / "m.csv").write_text("\n".join(rows))
    assert node(place).meets("cat 4 of 4 | of the part 'validation'") == ""
