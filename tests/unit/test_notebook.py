"""The notebook of the manual runs from its first cell to its last, and shows what is stored in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_shows_what_is_stored_in_it(path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    stored, notebook = nbformat.read(path, as_version=4), nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook, timeout=120, record_timing=False, resources={"metadata": {"path": str(NOTEBOOKS)}}
    ).execute()
    notebook.metadata = stored.metadata  # the version of this Python is in the other
    assert not [output for output in outputs(notebook) if output.output_type == "error"]
    if os.environ.get("COLLBENCH_UPDATE_GOLDEN") == "1":
        nbformat.write(notebook, path)
    else:
        assert outputs(notebook) == outputs(stored)
