"""The compiled reader of pages beside SQLite: the same columns of every table, sound, odd or damaged."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_builder import SCHEMAS, NsysExport

from traceread.cli import main
from traceread.errors import TracereadError
from traceread.model import Table
from traceread.readers import nsys, pages
from traceread.readers.nsys_host import _Labels
from traceread.readers.options import ReadOptions
from traceread.readers.sqlite import Among, opened

REAL = Path(__file__).parents[2] / "shared" / "traces" / "nsys"
EDGES = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    2**15,
    -(2**15) - 1,
    2**23,
    2**31,
    -(2**31) - 1,
    2**40,
    2**47,
    -(2**47) - 1,
    2**63 - 1,
    -(2**63) + 1,
]

if not pages.is_available():
    pytest.skip("the compiled reader of pages was not built", allow_module_level=True)


@pytest.fixture
def used(monkeypatch):
    """Counts the rows that came from pages, and the times that SQLite had to be asked."""
    count = {"rows": 0, "odd": 0, "given up": 0}
    real = pages.batches

    def spy(*args):
        try:
            for batch in real(*args):
                count["rows" if isinstance(batch, pages.Batch) else "odd"] += (
                    batch.integers.shape[1] if isinstance(batch, pages.Batch) else 1
                )
                yield batch
        except pages.NotUnderstood:
            count["given up"] += 1
            raise

    monkeypatch.setattr(pages, "batches", spy)
    return count


def write(path, *statements, rows=(), into="t", page_size=4096):
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA page_size = {page_size}")
        for statement in statements:
            db.execute(statement)
        if rows:
            db.executemany(f"INSERT INTO {into} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.close()
    return path


def read(path, columns, text=None, where=(), table="t", compiled=True):
    """The columns and texts of a table, or what is raised instead."""
    texts = []

    def label(of_batch, _):
        if isinstance(of_batch, pages.Texts):
            of_batch = [
                None if end < 0 else of_batch.data[start:end].tobytes().decode("utf-8", "replace")
                for start, end in zip(of_batch.start.tolist(), of_batch.end.tolist(), strict=True)
            ]
        texts.extend(t if isinstance(t, str) else None for t in of_batch)
        return np.arange(len(texts) - len(of_batch), len(texts))

    try:
        with opened(path, compiled=compiled) as db:
            found = db.integers(table, columns, where, text, label if text else None)
            order = found.pop("label").tolist() if text else []
            return {name: values.tolist() for name, values in found.items()}, [texts[i] for i in order]
    except TracereadError as error:
        return type(error)  # which of several damages is named is no matter


def alike(path, columns, text=None, where=(), table="t"):
    """What both ways give, which must be the same."""
    fast = read(path, columns, text, where, table)
    assert fast == read(path, columns, text, where, table, compiled=False)
    return fast


# Sound tables


@pytest.mark.parametrize("page_size", [512, 1024, 4096, 65536])
def test_numbers_of_every_size(page_size, tmp_path, used):
    rows = [(a, b) for a in EDGES for b in [*EDGES, None]] * 20
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, b INTEGER)", rows=rows, page_size=page_size)
    columns, _ = alike(path, {"a": 0, "b": -7, "missing": 3})
    assert columns["a"] == [a for a, _ in rows]
    assert columns["b"] == [-7 if b is None else b for _, b in rows]
    assert set(columns["missing"]) == {3}
    assert used == {"rows": len(rows), "odd": 0, "given up": 0}


def test_more_rows_than_a_batch_holds(tmp_path, used, monkeypatch):
    monkeypatch.setattr(pages, "_ROWS", 1000)
    rows = [(i, f"name {i % 50}") for i in range(12_345)]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s TEXT)", rows=rows)
    columns, texts = alike(path, {"a": 0}, "s")
    assert columns["a"] == list(range(12_345))
    assert texts == [s for _, s in rows]
    assert used["given up"] == used["odd"] == 0


def test_more_text_than_a_batch_holds(tmp_path, used, monkeypatch):
    monkeypatch.setattr(pages, "_TEXT_BYTES", 500)
    rows = [(i, "x" * (i % 400)) for i in range(2000)]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s TEXT)", rows=rows)
    assert alike(path, {"a": 0}, "s")[1] == [s for _, s in rows]
    assert used == {"rows": 2000, "odd": 0, "given up": 0}


def test_a_text_larger_than_the_room_for_all(tmp_path, used, monkeypatch):
    monkeypatch.setattr(pages, "_TEXT_BYTES", 500)
    rows = [(1, "a"), (2, "x" * 501), (3, "b")]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s TEXT)", rows=rows)
    assert alike(path, {"a": 0}, "s")[1] == [s for _, s in rows]
    assert used == {"rows": 2, "odd": 1, "given up": 0}


def test_columns_in_any_order_and_twice(tmp_path):
    rows = [(i, 2 * i, f"n{i}", 3 * i, 4 * i) for i in range(300)]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, b INTEGER, s TEXT, c INTEGER, d INTEGER)", rows=rows)
    columns, _ = alike(path, {"d": 0, "a": 0}, "s", [Among("d", (40, 80, 81)), Among("c", (30, 60))])
    assert columns == {"d": [40, 80], "a": [10, 20]}


def test_conditions_are_those_of_sqlite(tmp_path):
    smallest = -(1 << 63)
    rows = [(i if i % 7 else None, i % 5) for i in range(-400, 400)] + [(smallest + i, None) for i in range(3)]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, b INTEGER)", rows=rows)
    for where in (
        [Among("a", (1, 2, 300))],
        [Among("a", (0, 256), cleared=0xFF)],
        [Among("a", (-256,), cleared=0xFF)],
        [Among("a", (1, 2), negated=True)],
        [Among("a", (smallest, smallest + 1))],
        [Among("a", (smallest,), cleared=0xFF)],
        [Among("a", (smallest, 5), negated=True)],
        [Among("a", (5, 10, 15)), Among("b", (0,))],
        [Among("a", (99999,))],
        [Among("b", ())],
        [Among("b", (), negated=True)],
    ):
        alike(path, {"a": -1, "b": -1}, None, where)


def test_many_deleted_rows(tmp_path, used):
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s TEXT)", rows=[(i, "x" * (i % 90)) for i in range(20_000)])
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM t WHERE a % 3 = 0 OR a BETWEEN 5000 AND 9000")
        db.execute("INSERT INTO t SELECT a, s FROM t WHERE a < 3000")
    db.close()
    alike(path, {"a": 0}, "s")
    assert used["given up"] == used["odd"] == 0


def test_tables_beside_each_other(tmp_path, used):
    """Pages of several tables that grew at the same time, which is how an exporter writes them."""
    path = write(tmp_path / "a", *(f"CREATE TABLE t{i} (a INTEGER, b INTEGER)" for i in range(5)))
    with sqlite3.connect(path) as db:
        for at in range(0, 30_000, 150):
            for i in range(5):
                db.executemany(f"INSERT INTO t{i} VALUES (?, ?)", ((n, n * n) for n in range(at, at + 150)))
    db.close()
    for i in range(5):
        assert alike(path, {"b": 0}, table=f"t{i}")[0]["b"] == [n * n for n in range(30_000)]
    assert used["given up"] == 0


def test_an_empty_table(tmp_path, used):
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER)")
    assert alike(path, {"a": 0}) == ({"a": []}, [])
    assert used["given up"] == 0


def test_rows_written_before_a_column_was_added(tmp_path, used):
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER)", rows=[(i,) for i in range(50)])
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE t ADD COLUMN b INTEGER")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(i, i) for i in range(50)])
    db.close()
    assert alike(path, {"b": -9})[0]["b"] == [-9] * 50 + list(range(50))
    assert used == {"rows": 100, "odd": 0, "given up": 0}
    with sqlite3.connect(path) as db:
        db.execute("ALTER TABLE t ADD COLUMN c INTEGER DEFAULT 5")
    db.close()
    assert alike(path, {"c": -9})[0]["c"] == [5] * 100


# Odd ones


def test_rows_that_go_on_in_other_pages(tmp_path, used):
    rows = [(i, "y" * (9000 if i % 10 == 0 else 5), i + 1) for i in range(1000)]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s TEXT, b INTEGER)", rows=rows)
    columns, texts = alike(path, {"a": 0, "b": 0}, "s")
    assert (columns["b"][10], len(texts[10])) == (11, 9000)
    assert (used["rows"], used["odd"]) == (900, 100)
    alike(path, {"b": 0}, None, [Among("a", tuple(range(0, 1000, 4)))])


def test_too_many_odd_rows_are_left_to_sqlite(tmp_path, used, monkeypatch):
    from traceread.readers import sqlite

    monkeypatch.setattr(sqlite, "_MOST_ODD_ROWS", 20)
    rows = [(i, "y" * (9000 if i % 10 == 0 else 5)) for i in range(1000)]
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s TEXT)", rows=rows)
    assert alike(path, {"a": 0})[0]["a"] == list(range(1000))
    assert used["odd"] == 21


@pytest.mark.parametrize("value", ["text", 1.5, b"blob", "12"])
def test_what_is_no_integer(value, tmp_path):
    path = write(tmp_path / "a", "CREATE TABLE t (a, b INTEGER)", rows=[(1, 2), (value, 3), (4, 5)])
    alike(path, {"b": 0})
    alike(path, {"a": 0})


@pytest.mark.parametrize("value", [7, 1.5, b"blob", None, "ä\ud800".encode("utf-8", "surrogatepass")])
def test_what_is_no_text(value, tmp_path):
    path = write(tmp_path / "a", "CREATE TABLE t (a INTEGER, s)")
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO t VALUES (1, ?), (2, CAST(? AS TEXT)), (3, 'ü')", (value, value))
    db.close()
    alike(path, {"a": 0}, "s")


@pytest.mark.parametrize(
    "table",
    [
        "CREATE TABLE t (a INTEGER PRIMARY KEY, b INTEGER)",
        "CREATE TABLE t (a INT PRIMARY KEY, b INTEGER) WITHOUT ROWID",
        "CREATE TABLE t (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1) VIRTUAL)",
        "CREATE TABLE t (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1) STORED)",
        "CREATE TABLE t (a INTEGER, rowid INTEGER, oid INTEGER, _rowid_ INTEGER)",
        "CREATE TABLE t (a INT PRIMARY KEY DESC, b INTEGER)",
        "CREATE TABLE t (a INTEGER PRIMARY KEY AUTOINCREMENT, b INTEGER)",
    ],
)
def test_tables_that_are_stored_otherwise(table, tmp_path):
    path = write(tmp_path / "a", table)
    with sqlite3.connect(path) as db:
        db.executemany("INSERT INTO t (a) VALUES (?)", [(i,) for i in (5, 3, 9, 1, 400, 77)])
    db.close()
    alike(path, {"a": 0, "b": 0})


@pytest.mark.parametrize("pragma", ["encoding = 'UTF-16le'", "auto_vacuum = 1", "journal_mode = WAL", "user_version = 9"])
def test_other_kinds_of_files(pragma, tmp_path):
    path = tmp_path / "a"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA {pragma}")
        db.execute("CREATE TABLE t (a INTEGER, s TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(i, f"ä{i}") for i in range(3000)])
    db.close()
    alike(path, {"a": 0}, "s")


def test_a_table_on_the_first_page(tmp_path):
    """The schema table itself, which begins behind the header of the file."""
    path = write(tmp_path / "a", *(f"CREATE TABLE t{i} (a INTEGER)" for i in range(200)))
    header = path.read_bytes()[: pages.HEADER_BYTES]
    layout = pages.layout(header, path.stat().st_size)
    wanted, found = [pages.Wanted(1, None), pages.Wanted(3, 0)], []
    with path.open("rb") as file:
        for batch in pages.batches(file.fileno(), layout, 1, wanted):
            found += batch.integers[0].tolist()
    with sqlite3.connect(path) as db:
        assert found == [root for (root,) in db.execute("SELECT rootpage FROM sqlite_master")]
    db.close()


def test_headers_that_make_no_sense(tmp_path):
    header = bytearray(write(tmp_path / "a", "CREATE TABLE t (a)").read_bytes()[:100])
    assert pages.layout(bytes(header), 8192) is not None
    for at, value in ((16, b"\x00\x00"), (16, b"\x10\x01"), (16, b"\x01\x00"), (20, b"\xff")):
        changed = bytearray(header)
        changed[at : at + len(value)] = value
        found = pages.layout(bytes(changed), 8192)
        assert found is None or found.usable_bytes >= 480
    assert pages.layout(b"", 0) is None


# Names of NVTX ranges

PIECES = [
    "aten::add", ", seq = ", ", op_id = ", ", sizes = [[2, 3]]", ", input_op_ids = [(1,0)]",
    "12", "0", ", ", ",", "seq", " ", "\n", "ä", "x",
]  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.none(), st.lists(st.sampled_from(PIECES), max_size=7).map("".join)), min_size=1, max_size=40))
def test_names_are_cut_as_the_pattern_does(texts):
    class Names:
        def __init__(self):
            self.known = {}

        def code(self, text):
            return self.known.setdefault(text, len(self.known))

    data = [None if t is None else t.encode() for t in texts]
    end = np.cumsum([len(d or b"") for d in data])
    column = pages.Texts(
        np.frombuffer(b"".join(d or b"" for d in data) + b"\0", np.uint8),
        end - [len(d or b"") for d in data],
        np.where([d is None for d in data], -1, end),
    )
    codes = Names()
    found = _Labels(codes).column(column, {"textId": np.full(len(texts), -1)}) if None not in texts else None
    if found is None:
        kinds = pages.distinct_names(column)
        assert [kinds.kinds[k] == pages.NameKind.NONE for k in kinds.of.tolist()] == [t is None for t in texts]
        return
    expected = _Labels(codes)
    assert found.tolist() == [expected.of(t) for t in texts]


def test_names_that_differ_stay_apart_however_many():
    texts = [f"name {i}, op_id = {i}" for i in range(5000)] * 2
    data = [t.encode() for t in texts]
    end = np.cumsum([len(d) for d in data])
    found = pages.distinct_names(pages.Texts(np.frombuffer(b"".join(data), np.uint8), end - [len(d) for d in data], end))
    assert sorted(found.names) == sorted(f"name {i}" for i in range(5000))
    assert [found.names[g] for g in found.of.tolist()] == [f"name {i}" for i in range(5000)] * 2


# Whole exports


def same_traces(one, other):
    assert [t.rank for t in one] == [t.rank for t in other]
    for a, b in zip(one, other, strict=True):
        assert a.notices == b.notices
        for table in ("activities", "calls", "ranges", "stream_waits", "collective_records"):
            left, right = getattr(a, table), getattr(b, table)
            assert isinstance(left, Table)
            for (name, mine), (_, theirs) in zip(left.columns(), right.columns(), strict=True):
                if name == "name":
                    assert [a.names[c] for c in mine.tolist()] == [b.names[c] for c in theirs.tolist()]
                else:
                    np.testing.assert_array_equal(mine, theirs, f"{table}.{name}")


@pytest.mark.parametrize(
    "path", sorted(set(REAL.glob("*.sqlite")) - {REAL / "aborted_export.sqlite"}) or [None], ids=lambda p: p.stem if p else "none"
)
def test_real_exports(path, used):
    if path is None:
        pytest.skip("no real exports beside the repository")
    same_traces(nsys.read(path), nsys.read(path, ReadOptions(compiled=False)))
    assert used["given up"] == 0


@pytest.mark.parametrize("schema", SCHEMAS)
def test_exports_of_every_year(schema, tmp_path, used):
    export = NsysExport()
    for i in range(50):
        export.launch(100 * i, 100 * i + 20, 100 * i + 60, f"kernel {i % 7}", correlation=i + 1)
        export.nvtx(100 * i, 100 * i + 90, f"aten::add, seq = {i}, op_id = {i}, sizes = [[{i}]]")
        export.nvtx(100 * i, 100 * i + 5, f"registered {i % 3}", registered=True)
        export.os_call(100 * i, 100 * i + 3)
    path = tmp_path / "a.sqlite"
    export.write(path, schema)
    same_traces(nsys.read(path), nsys.read(path, ReadOptions(compiled=False)))
    assert used["given up"] == 0
    assert used["rows"] > 100


def test_info_says_which_one_reads(tmp_path, capsys, monkeypatch):
    path = tmp_path / "a.sqlite"
    NsysExport().launch(0, 10, 20, correlation=1).write(path)
    assert main(["info", str(path)]) == 0
    assert "read with: compiled reader of pages" in capsys.readouterr().out
    monkeypatch.setenv(pages.PURE_PYTHON, "1")
    assert main(["info", str(path)]) == 0
    assert "read with: SQLite (TRACEREAD_PURE_PYTHON is set)" in capsys.readouterr().out
    monkeypatch.setattr(pages, "_HERE", False)
    assert "was not built" in pages.in_use()


# Damage


def damaged(data, seed):
    """The file with some bytes changed, most of them where structure is: at the beginnings of pages."""
    chance = random.Random(seed)
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        if chance.random() < 0.6:
            at = chance.randrange(1, len(changed) // 512) * 512 + chance.randrange(60)
        else:
            at = chance.randrange(100, len(changed))
        changed[at % len(changed)] = chance.choice([0, 1, 2, 5, 10, 13, 127, 128, 255, chance.randrange(256)])
    return bytes(changed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    rows = [(i, i * i, f"name {i % 9}, op_id = {i}", "z" * (600 if i % 40 == 0 else 3), i % 5) for i in range(900)]
    path = write(
        tmp_path_factory.mktemp("whole") / "a",
        "CREATE TABLE t (a INTEGER, b INTEGER, s TEXT, u TEXT, c INTEGER)",
        rows=rows,
        page_size=512,
    )
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM t WHERE a % 11 = 3")
    db.close()
    return path.read_bytes()


@pytest.mark.parametrize("seeds", [range(at, at + 100) for at in range(0, 1000, 100)], ids=lambda r: f"{r.start}")
def test_damage_is_what_sqlite_says_it_is(seeds, whole, tmp_path):
    path = tmp_path / "a"
    for seed in seeds:
        path.write_bytes(damaged(whole, seed))
        columns = {"a": -1, "c": -1, "b": -1}
        fast, slow = read(path, columns, "s"), read(path, columns, "s", compiled=False)
        assert fast == slow, f"seed {seed}"
        fast, slow = (read(path, columns, None, [Among("c", (1, 2))], compiled=c) for c in (True, False))
        assert fast == slow, f"seed {seed}"


@pytest.mark.parametrize("root", [0, 10**6])
def test_a_table_that_begins_outside_the_file_is_for_sqlite(root, tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a INTEGER)")
        db.commit()
    content = path.read_bytes()
    layout = pages.layout(content[: pages.HEADER_BYTES], len(content))
    with path.open("rb") as file, pytest.raises(pages.NotUnderstood):
        list(pages.batches(file.fileno(), layout, root, [pages.Wanted(0, 0)]))
