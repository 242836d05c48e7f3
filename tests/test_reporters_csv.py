import csv
import io

import pytest
import reporter_profiles as profiles

from traceread.measurements.classes import CLASSES
from traceread.reporters import render
from traceread.reporters.csv import kernels_csv

EVERYTHING = profiles.everything()


def read(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("name", EVERYTHING)
def test_a_row_per_rank_window_and_class(name):
    report = EVERYTHING[name]()
    rows = read(render(report, "csv"))
    assert len(rows) == len(CLASSES) * sum(len(r.steps.windows) for r in report.ranks)
    assert sum(int(r["duration_ns"]) for r in rows) == sum(w.duration_ns for r in report.ranks for w in r.steps.windows)


def test_rows():
    first = read(render(profiles.one_rank(), "csv"))[12]
    assert first == {
        "rank": "3",
        "step": "ProfilerStep#11",
        "class": "compute",
        "duration_ns": "27578000",
        "share": "0.689450",
        "used": "1",
    }


def test_names_are_no_formulas():
    report = profiles.hostile()
    names = [row["name"] for row in read(kernels_csv(report.ranks[0], "name", 0))]
    assert "'=1+1" in names
    assert not any(name.startswith(("=", "+", "-", "@", "\t", "\r")) for name in names)


def test_kernels_by_family_and_limit():
    rank = profiles.one_rank().ranks[0]
    assert [row["family"] for row in read(kernels_csv(rank, "family", 2))] == ["gemm", "communication"]
    assert len(read(kernels_csv(rank, "name", 0))) == 4
