import re
from pathlib import Path

import pytest

from traceread.measurements.classes import StepClass
from traceread.measurements.reconciliation import ExposedParts, Part, Reconciliation, reconcile

MS = 10**6


def classes(**ms):
    return {c: ms.get(c.key, 0) * MS for c in StepClass}


def parts(reconciliation):
    return {part: ns / MS for part, ns in reconciliation.ns.items() if ns}


STEP = classes(
    compute=2900,
    exposed_communication=400,
    exposed_copy=1,
    data_wait=180,
    host_sync=119,
    checkpoint=10,
    queued=2,
    unattributed=3,
    profiler=4,
)


def test_every_class_has_its_part_and_all_add_up():
    found = reconcile(STEP, None, None)
    assert parts(found) == {
        Part.MODEL: 2900,
        Part.COMMUNICATION: 400,
        Part.HOST: 300,
        Part.CHECKPOINT: 10,
        Part.UNCLASSIFIED: 9,
    }
    assert found.whole_ns == sum(STEP.values())
    assert not found.again_known
    assert (found.transfer_ns, found.wait_ns) == (None, None)


def test_compute_splits_by_flops():
    found = reconcile(STEP, 300, 400)
    assert (found.ns[Part.MODEL], found.ns[Part.AGAIN]) == (2175 * MS, 725 * MS)
    assert found.again_known
    assert reconcile(STEP, 400, 400).ns[Part.AGAIN] == 0
    assert reconcile(STEP, 500, 400).ns[Part.AGAIN] == 0


def test_splits_are_exact_whatever_the_numbers():
    for model, hardware in ((1, 3), (2, 3), (7, 11), (10**18, 3 * 10**18)):
        found = reconcile(classes(compute=1) | {StepClass.COMPUTE: 1_000_001}, model, hardware)
        assert sum(found.ns.values()) == 1_000_001


def test_exposed_communication_splits_where_ranks_are_compared():
    found = reconcile(STEP, None, None, ExposedParts(transfer_ns=250 * MS, wait_ns=50 * MS, imbalance_ns=100 * MS))
    assert (found.ns[Part.COMMUNICATION], found.ns[Part.IMBALANCE]) == (300 * MS, 100 * MS)
    assert (found.transfer_ns, found.wait_ns) == (250 * MS, 50 * MS)
    assert found.transfer_ns + found.wait_ns == found.ns[Part.COMMUNICATION]


def test_parts_that_do_not_add_up_are_refused():
    shares = dict(zip(Part, (43, 9, 14, 18, 7, 4, 6), strict=True))
    with pytest.raises(ValueError, match="add up to 101, not 100"):
        Reconciliation(shares, 100)
    with pytest.raises(ValueError, match="add up"):
        Reconciliation({Part.MODEL: 100}, 100)
    with pytest.raises(ValueError, match="add up"):
        Reconciliation(dict(zip(Part, (143, -43, 0, 0, 0, 0, 0), strict=True)), 100)


DOCS = Path(__file__).parents[1] / "docs" / "efficiency.md"


def test_the_example_of_the_documentation():
    """MFU 31 %: 43 % of the wall time is the model's own computing, at 72 % of the peak; the other parts say where the rest went."""
    text = DOCS.read_text("utf-8").split("## Wall time")[1]
    shares = {name: int(share) for name, share in re.findall(r"^\| ([a-z ]+) \| (\d+) % \|$", text, re.MULTILINE)}
    assert tuple(shares.values()) == (43, 9, 14, 18, 7, 4, 5)
    found = Reconciliation({part: shares[part.words] for part in Part}, 100)
    assert found.share(Part.IMBALANCE) == 0.18
    assert found.rate_while_computing(0.31) == pytest.approx(0.721, abs=0.0005)
    assert "43 % of the time at 72 % of the peak are 31 %" in text


def test_nothing_computed():
    found = reconcile(classes(data_wait=5), None, None)
    assert found.rate_while_computing(0.1) is None
    assert reconcile(classes(), None, None).share(Part.MODEL) == 0
