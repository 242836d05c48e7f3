"""Notebooks are committed without outputs and run from top to bottom."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_is_a_first_look():
    assert "first_look.ipynb" in [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_outputs_are_stripped(path):
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "notebooks").mkdir()
    shutil.copytree(ROOT / "sample_traces", tmp_path / "sample_traces")
    notebook = nbformat.read(path, 4)
    if any("import torch\n" in cell.source for cell in notebook.cells):
        pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[capture]'")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path / "notebooks")}}).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs, f"shows nothing:\n{cell.source}"
