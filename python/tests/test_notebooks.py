"""Executes the notebooks, from a copy, with the module that is installed."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def executed(notebook: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(folder)}}
    )
    return client.execute()


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_a_table_and_a_picture(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    ran = executed(notebook, tmp_path)
    outputs = [output for cell in ran.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert {"text/html", "image/png"} <= kinds


def test_a_cell_that_fails_is_noticed(tmp_path: Path) -> None:
    cell = nbformat.v4.new_code_cell("import weft\nweft.sim('absent.fio')")
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="absent.fio"):
        executed(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
