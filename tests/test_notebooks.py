"""The cells of every notebook run, one after the other, and show what they are there to show.

Without Jupyter, whose kernel takes longer to install than all the rest: a cell is executed as
Python, and its last expression is what Jupyter would show.
"""

import ast
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def code_cells(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(source, namespace):
    """Execute a cell; return the value of its last expression, if it ends with one."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), namespace)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_are_kept_without_outputs(path):
    for cell in code_cells(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


def test_three_agents(capsys):
    namespace = {"__name__": "__main__"}
    sources = ["".join(cell["source"]) for cell in code_cells(EXAMPLES / "three_agents.ipynb")]
    assert any("epochs=20" in source for source in sources)
    shown = [run(source.replace("epochs=20", "epochs=2"), namespace) for source in sources]
    network, figure = (value for value in shown if value is not None)
    assert network is namespace["network"]
    assert "<table>" in network._repr_html_()
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert capsys.readouterr().out.startswith("correct: 0.")
