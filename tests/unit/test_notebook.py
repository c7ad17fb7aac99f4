"""The notebook of the manual runs from its first cell to its last, and shows tables."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert sum("text/html" in output.get("data", {}) for output in outputs) == 2
