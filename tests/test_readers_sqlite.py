import sqlite3

import numpy as np
import pytest

from traceread.errors import CorruptTrace, InputError
from traceread.readers.sqlite import Among, opened


@pytest.fixture
def make(tmp_path):
    def write(*statements, name="a.sqlite"):
        path = tmp_path / name
        with sqlite3.connect(path) as db:
            for statement in statements:
                db.execute(*statement) if isinstance(statement, tuple) else db.execute(statement)
        db.close()
        return path

    return write


def test_columns_come_in_file_order_and_null_reads_as_the_default(make):
    path = make("CREATE TABLE t (a INTEGER, b INTEGER)", "INSERT INTO t VALUES (3, NULL), (1, 7), (2, -5)")
    with opened(path) as db:
        columns = db.integers("t", {"a": 0, "b": -9, "missing": 4})
    assert columns["a"].tolist() == [3, 1, 2]
    assert columns["b"].tolist() == [-9, 7, -5]
    assert columns["missing"].tolist() == [4, 4, 4]
    assert all(values.dtype == np.int64 for values in columns.values())


def test_batches_join_to_the_whole_table(make):
    path = make("CREATE TABLE t (a INTEGER)")
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(140_000)))
    db.close()
    with opened(path) as db:
        assert db.integers("t", {"a": 0})["a"].tolist() == list(range(140_000))
        assert db.integers("t", {"a": 0}, [Among("a", (39998, 39999))])["a"].tolist() == [39998, 39999]


def test_an_index_does_not_change_the_order(make):
    filler = "x" * 500  # so that the index is the shorter way to the numbers
    path = make("CREATE TABLE t (a INTEGER, s TEXT)", "CREATE INDEX i ON t (a)")
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO t VALUES (?, ?)", [(3, filler), (1, filler), (2, filler)])
        assert db.execute("SELECT a FROM t").fetchall() == [(1,), (2,), (3,)]
    db.close()
    with opened(path) as db:
        assert db.integers("t", {"a": 0})["a"].tolist() == [3, 1, 2]


def test_texts_beside_integers(make):
    path = make("CREATE TABLE t (a INTEGER, s TEXT)", "INSERT INTO t VALUES (1, 'x'), (2, NULL)")
    for column, expected in (("s", ("x", None)), ("missing", (None, None))):
        seen = []
        with opened(path, compiled=False) as db:
            columns = db.integers("t", {"a": 0}, (), column, lambda texts, beside: seen.append(texts) or 10 * beside["a"])  # noqa: B023
        assert columns["a"].tolist() == [1, 2]
        assert columns["label"].tolist() == [10, 20]
        assert seen == [expected]


def test_a_missing_table_is_empty(make):
    with opened(make("CREATE TABLE t (a)")) as db:
        assert not db.has("nope")
        assert db.columns("nope") == frozenset()
        assert db.integers("nope", {"a": 0})["a"].tolist() == []
        assert db.rows("nope", ("a",)) == []


def test_versioned_table_names_are_found_the_plain_name_first(make):
    path = make("CREATE TABLE K_V2 (a)", "CREATE TABLE K_V10 (a)", "CREATE TABLE L (a)", "CREATE TABLE L_V2 (a)", "CREATE TABLE K_VX (a)")
    with opened(path) as db:
        assert db.table("K") == "K_V10"
        assert db.table("L") == "L"


def test_strings_by_id_leave_out_what_is_not_text(make):
    path = make("CREATE TABLE s (id INTEGER PRIMARY KEY, value TEXT)", "INSERT INTO s VALUES (1, 'a'), (5000000, 'b'), (7, NULL)")
    with opened(path) as db:
        assert db.strings("s", np.array([1, 5_000_000, 7, 99])) == {1: "a", 5_000_000: "b"}
        assert db.strings("nope", np.array([1])) == {}


def test_many_strings_take_several_lookups(make):
    path = make("CREATE TABLE s (id INTEGER PRIMARY KEY, value TEXT)")
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO s VALUES (?, ?)", ((i, f"name {i}") for i in range(1700)))
    db.close()
    with opened(path) as db:
        assert db.strings("s", np.arange(1700)) == {i: f"name {i}" for i in range(1700)}


def test_text_that_is_not_utf8_is_replaced(make):
    path = make("CREATE TABLE m (name TEXT, value TEXT)", ("INSERT INTO m VALUES ('zone', CAST(? AS TEXT))", (b"S\xe3o Paulo",)))
    with opened(path) as db:
        assert db.rows("m", ("name", "value")) == [("zone", "S\ufffdo Paulo")]


def test_views_and_virtual_tables_are_not_tables(make):
    path = make(
        "CREATE TABLE real (a INTEGER)",
        "INSERT INTO real VALUES (1)",
        "CREATE VIEW v AS SELECT a FROM real",
        "CREATE VIRTUAL TABLE f USING fts5(a)",
    )
    with opened(path) as db:
        assert db.has("real")
        assert not db.has("v")
        assert not db.has("f")


def test_nothing_is_written_not_even_beside_the_file(make, tmp_path):
    path = make("CREATE TABLE t (a)", "INSERT INTO t VALUES (1)")
    before = path.read_bytes()
    with opened(path) as db:
        db.integers("t", {"a": 0})
        with pytest.raises(sqlite3.OperationalError):
            db._connection.execute("INSERT INTO t VALUES (2)")
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["a b.sqlite", "100%.sqlite", "q?mode=rw.sqlite", "a#b.sqlite", "ü.sqlite"])
def test_odd_file_names(make, name):
    with opened(make("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (4)", name=name)) as db:
        assert db.integers("t", {"a": 0})["a"].tolist() == [4]


def test_text_in_a_number_column_is_corrupt(make):
    path = make("CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES ('abc')")
    with opened(path) as db, pytest.raises(CorruptTrace, match="table t holds text"):
        db.integers("t", {"a": 0})


def test_a_number_beyond_64_bits_is_corrupt(make):
    path = make("CREATE TABLE t (a REAL)", "INSERT INTO t VALUES (1e300)")
    with opened(path) as db, pytest.raises(CorruptTrace):
        db.integers("t", {"a": 0})


def test_a_missing_file_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"nope\.sqlite"), opened(tmp_path / "nope.sqlite"):
        pass


def test_a_file_that_is_no_database_is_corrupt(tmp_path):
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(CorruptTrace), opened(path):
        pass


def endless(make, depth):
    """A table of few pages whose every pointer leads to the same child, so that it claims 60 to the power of depth leaves."""
    path = make("PRAGMA page_size = 512", "CREATE TABLE t (a INTEGER)")
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO t VALUES (?)", ((i % 100,) for i in range(60_000)))
    db.close()
    raw = path.read_bytes()
    pages = [bytearray(raw[at : at + 512]) for at in range(0, len(raw), 512)]

    def cells(page):
        count = int.from_bytes(page[3:5], "big")
        return [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(count)]

    middle = pages[int.from_bytes(pages[1][8:12], "big") - 1]
    assert middle[0] == 5  # an interior page
    leaf = pages[int.from_bytes(middle[cells(middle)[0] : cells(middle)[0] + 4], "big") - 1]
    small = [pages[0]]
    for level in range(depth):
        page = bytearray(middle)
        child = (level + 3).to_bytes(4, "big")
        for cell in cells(page):
            page[cell : cell + 4] = child
        page[8:12] = child
        small.append(page)
    small.append(leaf)
    small[0][28:32] = len(small).to_bytes(4, "big")
    path.write_bytes(b"".join(small))
    return path


def test_rows_that_cannot_all_fit_are_refused(make):
    path = endless(make, depth=2)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM t").fetchone()[0] > 10 * path.stat().st_size
    db.close()
    with opened(path) as db, pytest.raises(CorruptTrace, match="more rows than"):
        db.integers("t", {"a": 0})


def test_a_scan_that_cannot_end_is_stopped(make):
    with opened(endless(make, depth=6)) as db, pytest.raises(CorruptTrace, match="interrupted"):
        db.integers("t", {"a": 0}, [Among("a", (1000,))])


def test_a_value_larger_than_allowed_is_refused(make):
    path = make("CREATE TABLE t (s TEXT)", ("INSERT INTO t VALUES (?)", ("x" * 3_000_000,)))
    with opened(path, max_value_bytes=1000) as db, pytest.raises(CorruptTrace, match="larger than"):
        db.rows("t", ("s",))


def test_progress_counts_bytes_and_ends_at_the_size(make):
    seen = []
    path = make("CREATE TABLE t (a INTEGER)")
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(150_000)))
    db.close()
    with opened(path, progress=lambda done, total: seen.append((done, total))) as db:
        db.expect(["t", "nope"])
        db.integers("t", {"a": 0})
        db.read_all()
    size = path.stat().st_size
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 2
    assert seen[-1] == (size, size)
