"""The labelling rule applied to releases, as the paper's thickness-computing attacker does it.

Jafarzadeh Asl et al. 2023, section IV-C and Table I. The rule of annotated MNIST also answers
"normal", which no image of the data is. The paper tries three readings of that answer (at random,
thin, thick), scores each on the test images, and reports the best: a choice that is made on what it
is scored on. `fedlens.privatizers.attacks.attackers.formula` counts on the attacker's own records
what every answer means in place of choosing, and measures the width more finely.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedlens.data.attributes.thickness import NORMAL, THICK, THIN, AnnotatedRule
from fedlens.foundation.tables import Row
from fedlens.models.shapes import as_pixels
from fedlens.privatizers.attacks.balanced import balanced_accuracy
from fedlens.privatizers.private_data import PrivateData

READINGS = ("random", "thin", "thick")
CHUNK = 500


def rule_of(raw: PrivateData) -> AnnotatedRule:
    """The rule with the mean widths of raw images [n, 1, 28, 28], whose utility is the digit."""
    return AnnotatedRule.fit(as_pixels(raw.records), raw.utility.numpy())


def read_by_rule(
    rule: AnnotatedRule,
    reader: nn.Module,
    test: PrivateData,
    thresholds: Sequence[float],
    seed: int,
) -> Row:
    """Balanced accuracy ``tca`` of the best reading of "normal", and that reading, ``tca_normal``.

    Args:
        rule: with the mean widths of each digit.
        reader: network that reads the digit from a released image.
        test: released images, the attribute thin (0) or thick (1).
        thresholds: pixels above one of these are ink; the best of them counts.
        seed: of the reading at random.
    """
    digits = torch.cat([_digits(reader, part) for part in torch.split(test.records, CHUNK)])
    found: dict[str, float] = dict.fromkeys(READINGS, 0.0)
    for threshold in thresholds:
        said = torch.from_numpy(rule.label((test.records > threshold).numpy(), digits.numpy()))
        for name in READINGS:
            answers = torch.where(said == NORMAL, _reading(name, len(said), seed), said)
            found[name] = max(found[name], balanced_accuracy(answers, test, seed)[0])
    best = max(READINGS, key=found.__getitem__)
    return {"tca": found[best], "tca_normal": best}


@torch.no_grad()
def _digits(reader: nn.Module, records: Tensor) -> Tensor:
    answers: Tensor = reader(records).argmax(-1)
    return answers


def _reading(name: str, count: int, seed: int) -> Tensor:
    if name == "random":
        return torch.randint(2, (count,), generator=torch.Generator().manual_seed(seed))
    return torch.full((count,), THIN if name == "thin" else THICK)
