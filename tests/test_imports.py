"""Imports go down the pipeline only, heavy libraries are imported where they are used, and recording and simulating stand apart."""

import ast
import gzip
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "traceread"

PIPELINE = (
    "records",
    "errors",
    "units",
    "names",
    "intervals",
    "engine",
    "model",
    "cache",
    "remote",
    "readers",
    "categories",
    "config",
    "run",
    "steplog",
    "measurements",
    "runs",
    "findings",
    "rules",
    "selection",
    "analysis_options",
    "report",
    "comparison",
    "history",
    "figures",
    "reporters",
    "job",
    "traceread",  # the package itself: load and analyze
    "scrub",
    "cli",
    "__main__",
)
"""From the bottom up: a part may import those before it."""

APART = frozenset(("simulate", "capture"))
"""They know the formats, not the analysis; of the pipeline only the command line knows them."""

HEAVY = frozenset(
    ("IPython", "dask", "distributed", "fsspec", "jinja2", "mlflow", "nvtx", "pandas", "plotly", "rich", "sqlite_utils", "torch", "wandb"),
)
"""Imported inside the functions that use them."""

SHOWN_BY = frozenset(("figures", "reporters"))
"""What the methods of results (.save, .plot, _repr_html_) may import although it is above them."""


@dataclass(frozen=True)
class Import:
    """One imported module; `deferred` where it stands inside a function, `typing` where only type checkers see it."""

    importer: str
    imported: str
    deferred: bool
    typing: bool

    @property
    def parts(self):
        return part(self.importer), part(self.imported)

    def __str__(self):
        return f"{self.importer} imports {self.imported}"


def part(module):
    """The part of the pipeline a module belongs to."""
    names = module.split(".")
    return names[1] if len(names) > 1 else names[0]


def imports_of(module, source):
    found = []

    def visit(node, deferred, typing):
        if isinstance(node, ast.Import):
            found.extend(Import(module, alias.name, deferred, typing) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = node.module == "traceread" and not alias.name.startswith("__") and alias.name not in root_names()
                found.append(Import(module, name if is_module else node.module, deferred, typing))
        deferred = deferred or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        typing = typing or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        for child in ast.iter_child_nodes(node):
            visit(child, deferred, typing)

    visit(ast.parse(source), False, False)
    return found


def root_names():
    return {"load", "analyze", "diff"}


def package_imports():
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        yield from imports_of(module, path.read_text("utf-8"))


def ours(imports):
    return [i for i in imports if i.imported.split(".")[0] == "traceread" and not i.typing]


def goes_up(i):
    importer, imported = i.parts
    if importer == imported or importer in APART or imported in APART:
        return False
    if imported == "traceread" and i.imported == "traceread" and importer in ("reporters", "job"):
        return False  # the version, which the JSON carries and workers must share
    showing = ("model", "measurements", "runs", "findings", "rules", "report", "comparison", "history")
    if i.deferred and imported in SHOWN_BY and importer in showing:
        return False
    if imported not in PIPELINE or importer not in PIPELINE:
        return True  # its place has to be said first
    return PIPELINE.index(imported) >= PIPELINE.index(importer)


def stands_not_apart(i):
    importer, imported = i.parts
    if importer == imported:
        return False
    if importer in APART:
        return imported != "errors"
    return imported in APART and importer not in ("cli", "__main__")


def is_heavy_at_the_top(i):
    return not i.deferred and not i.typing and i.imported.split(".")[0] in HEAVY


def test_every_part_has_its_place():
    parts = {p.stem for p in PACKAGE.iterdir() if p.name != "__pycache__" and (p.suffix == ".py" or (p.is_dir() and list(p.glob("*.py"))))}
    assert parts - {"__init__"} <= {*PIPELINE, *APART}


def test_imports_go_down_the_pipeline():
    assert [str(i) for i in ours(package_imports()) if goes_up(i)] == []


def test_recording_and_simulating_stand_apart():
    assert [str(i) for i in ours(package_imports()) if stands_not_apart(i)] == []


def test_heavy_libraries_are_imported_where_they_are_used():
    assert [str(i) for i in package_imports() if is_heavy_at_the_top(i)] == []


def test_the_package_itself_imports_only_errors():
    top = {i.imported for i in ours(package_imports()) if i.importer == "traceread" and not i.deferred}
    assert top == {"traceread.errors"}


@pytest.mark.parametrize("statement", ["import traceread", "import traceread.cli", "from traceread.cli import _parser; _parser()"])
def test_starting_loads_no_library(statement):
    """What `traceread --help` needs is a few milliseconds of the standard library."""
    code = f"{statement}\nimport sys\nprint(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert set(loaded) & (HEAVY | {"numpy", "msgspec", "isal"}) == set()


NOT_FOR_TEXT = HEAVY - {"rich"} | {
    "numpy.ma",
    "difflib",
    "email",
    "importlib.metadata",
    "importlib.resources",
    "isal",
    "sqlite3",
    "statistics",
    "tempfile",
    "zipfile",
    "traceread.cache",
    "traceread.capture",
    "traceread.cli.diff",
    "traceread.cli.export",
    "traceread.comparison",
    "traceread.figures",
    "traceread.history",
    "traceread.readers.nsys",
    "traceread.readers.sqlite",
    "traceread.reporters.html",
    "traceread.reporters.json",
    "traceread.reporters.page",
    "traceread.runs.history",
    "traceread.runs.ledger",
    "traceread.scrub",
    "traceread.simulate",
}
"""What a report of a plain PyTorch trace as text does without. Each takes a hundredth or more of the time until it begins."""


def test_a_report_as_text_imports_nothing_it_does_not_use(tmp_path):
    """Most of a small report's time is importing."""
    trace = tmp_path / "rank0.json"
    trace.write_bytes(gzip.decompress((PACKAGE.parent / "sample_traces/item-sync/rank0.pt.trace.json.gz").read_bytes()))
    code = "import sys\nfrom traceread.cli import main\nassert main(sys.argv[1:]) == 0\nprint(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, "report", trace], check=True, capture_output=True, text=True)
    loaded = done.stderr.split()
    assert {"traceread.report", "rich.console"} <= set(loaded)
    assert set(loaded) & NOT_FOR_TEXT == set()


def frozen_dataclasses(source):
    """The classes that the standard library makes, whose methods have to be compiled one by one."""
    classes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    return [c.name for c in classes if any(ast.unparse(d).startswith("dataclass(frozen=True") for d in c.decorator_list)]


def test_immutable_classes_are_records():
    modules = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] not in APART]
    assert {p.stem: found for p in modules if (found := frozen_dataclasses(p.read_text("utf-8")))} == {"event_columns": ["EventBatch"]}
    assert frozen_dataclasses("@dataclass(frozen=True, eq=False)\nclass C:\n    x: int") == ["C"]


@pytest.mark.parametrize(
    ("module", "source", "rule", "broken"),
    [
        ("traceread.model", "from traceread.measurements.steps import Steps", goes_up, True),
        ("traceread.measurements.idle", "def f():\n    from traceread.report import Report", goes_up, True),
        ("traceread.readers.kineto", "from traceread import report", goes_up, True),
        ("traceread.readers.kineto", "from traceread import analyze", goes_up, True),
        ("traceread.report", "from traceread.reporters import render", goes_up, True),
        ("traceread.report", "def f():\n    from traceread.reporters import render", goes_up, False),
        ("traceread.measurements.idle", "from traceread import intervals", goes_up, False),
        ("traceread.cli.report", "def f():\n    import traceread", goes_up, False),
        ("traceread.report", "from traceread.simulate import simulate", stands_not_apart, True),
        ("traceread.simulate.kineto", "from traceread.model import Trace", stands_not_apart, True),
        ("traceread.cli.simulate", "def f():\n    from traceread.simulate import simulate", stands_not_apart, False),
        ("traceread.report", "import pandas as pd", is_heavy_at_the_top, True),
        ("traceread.report", "if TYPE_CHECKING:\n    import pandas as pd", is_heavy_at_the_top, False),
        ("traceread.report", "class C:\n    def f(self):\n        import pandas as pd", is_heavy_at_the_top, False),
        ("traceread.reporters.text", "from rich.console import Console", is_heavy_at_the_top, True),
    ],
)
def test_rules_notice(module, source, rule, broken):
    [found] = imports_of(module, source)
    assert rule(found) is broken
