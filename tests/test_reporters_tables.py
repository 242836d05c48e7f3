"""Tables for one's own tools: the same numbers as the report, in SQLite, CSV and Parquet."""

import csv
import sqlite3
from importlib.util import find_spec

import pytest
import reporter_profiles as profiles

from traceread.errors import OutputError
from traceread.measurements.classes import CLASSES
from traceread.reporters.tables import TABLES, save_csv, save_parquet, save_sqlite

EVERYTHING = profiles.everything()


def query(path, sql):
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def read_csv(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def encodable(value):
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


@pytest.mark.parametrize("name", EVERYTHING)
def test_every_profile_has_every_table(name, tmp_path):
    report = EVERYTHING[name]()
    path = save_sqlite(report, tmp_path / "a.sqlite")
    tables = {name for (name,) in query(path, "select name from sqlite_master")}
    assert tables == set(TABLES)
    written = save_csv(report, tmp_path / "csv")
    for table, file in zip(TABLES, written, strict=True):
        rows = read_csv(file)
        [(count,)] = query(path, f"select count(*) from {table}")
        assert len(rows) == count == sum(1 for _ in TABLES[table].rows(report))
        assert file.read_text("utf-8").splitlines()[0].split(",") == list(TABLES[table].columns)


@pytest.mark.parametrize("name", EVERYTHING)
def test_rows_hold_their_columns_and_nothing_else(name):
    report = EVERYTHING[name]()
    for table in TABLES.values():
        for row in table.rows(report):
            assert set(row) == set(table.columns)
            for column, value in row.items():
                assert value is None or type(value) is table.columns[column], column


def test_intervals_add_up_to_the_steps(tmp_path):
    report = profiles.four_ranks()
    path = save_sqlite(report, tmp_path / "a.sqlite")
    sums = query(path, "select rank, step, class, sum(duration_ns) from intervals group by 1, 2, 3")
    found = {(rank, step, name): ns for rank, step, name, ns in sums}
    for r in report.ranks:
        for i, w in enumerate(r.steps.windows):
            for name, ns in zip(CLASSES, r.partition.class_ns[i].tolist(), strict=True):
                assert found.get((r.rank, w.label, name), 0) == ns
    [(idle,)] = query(path, "select sum(duration_ns) from idle")
    [(by_class,)] = query(path, "select sum(data_wait_ns + host_sync_ns + launch_bound_ns + allocation_ns + compile_ns + checkpoint_ns"
                                " + profiler_ns + queued_ns + unattributed_ns) from steps")  # fmt: skip
    assert idle == by_class > 0


def test_findings_and_their_evidence_belong_together(tmp_path):
    report = profiles.four_ranks()
    path = save_sqlite(report, tmp_path / "a.sqlite")
    rows = query(path, "select f.title, f.saving_ns, count(*) from findings f join evidence e on e.finding = f.number group by f.number")
    assert rows == [(f.title, f.saving_ns, len(f.evidence)) for f in report.findings if f.evidence]


def test_names_are_safe_in_a_spreadsheet(tmp_path):
    written = save_csv(profiles.hostile(), tmp_path)
    kernels = read_csv(next(p for p in written if p.name == "kernels.csv"))
    assert {row["name"][0] for row in kernels} >= {"'"}
    assert not any(row["name"].startswith("=") for row in kernels)


def test_a_database_that_was_there_is_replaced_or_kept(tmp_path):
    path = tmp_path / "a.sqlite"
    path.write_text("something else")
    save_sqlite(profiles.one_rank(), path)
    assert query(path, "select count(*) from steps") == [(4,)]
    with pytest.raises(OutputError):
        save_sqlite(profiles.one_rank(), tmp_path / "none" / "a.sqlite")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OutputError, match="it is a directory"):
        save_sqlite(profiles.one_rank(), tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sqlite", "folder"]


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_needs_pyarrow(tmp_path):
    with pytest.raises(OutputError, match="pyarrow, which is not installed"):
        save_parquet(profiles.one_rank(), tmp_path)


@pytest.mark.parametrize("name", ["four_ranks", "host_only", "hostile"])
def test_parquet_holds_the_same(name, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed: pip install pyarrow")
    report = EVERYTHING[name]()
    for table, path in zip(TABLES, save_parquet(report, tmp_path), strict=True):
        rows = parquet.read_table(path).to_pylist()
        assert rows == [{name: encodable(value) for name, value in row.items()} for row in TABLES[table].rows(report)]
