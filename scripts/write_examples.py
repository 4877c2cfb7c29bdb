"""Execute the examples and write them as notebooks: python scripts/write_examples.py [path_counts ...].

The source of a notebook is the Python file of the same name in examples/. A line `# %%` begins a cell of code, and
`# %% [markdown]` a cell of text. A notebook is executed in a temporary folder, so that an example leaves no files.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TIMEOUT = 600
"""Largest number of seconds for a cell."""


def read_cells(source: str) -> list[tuple[str, str]]:
    """Return the kind ("code" or "markdown") and the text of each cell of a source."""
    cells = []
    for block in ("\n" + source).split("\n# %%")[1:]:
        mark, _, body = block.partition("\n")
        if mark.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            cells.append(("markdown", "\n".join(lines)))
        else:
            cells.append(("code", body.strip().replace("  # noqa: E402", "")))
    return cells


def execute(name: str, folder: Path) -> Any:
    """Return the executed notebook of an example, which ran in `folder`/examples."""
    import nbformat
    from nbclient import NotebookClient

    make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
    cells = [make[kind](text) for kind, text in read_cells((EXAMPLES / f"{name}.py").read_text())]
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # random by default, which would change the file each time
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    working_dir = prepare_folder(folder)
    client = NotebookClient(
        notebook,
        timeout=TIMEOUT,
        resources={"metadata": {"path": str(working_dir)}},
        coalesce_streams=True,  # keeps the last state of a progress bar
        record_timing=False,
    )
    return client.execute(env={**os.environ, "PYTHONPATH": f"{ROOT}", "PYTHONWARNINGS": "ignore"})


def prepare_folder(folder: Path) -> Path:
    """Return a new folder that an example can run in: the records of the benchmarks are next to it."""
    (folder / "benchmarks").symlink_to(ROOT / "benchmarks")
    working_dir = folder / "examples"
    working_dir.mkdir()
    return working_dir


def find_machine_paths(text: str, *folders: Path) -> list[str]:
    """Return those of `folders`, and of the folders of the repository and of Python, whose names are in a text."""
    folders = (*folders, ROOT, Path.home(), Path(sys.prefix), Path(sys.base_prefix))
    return sorted({str(folder) for folder in folders if len(folder.parts) > 1 and str(folder) in text})


def main(words: Sequence[str] | None = None) -> int:
    """Write the notebooks, and return 1 if one of them names a folder of this machine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in EXAMPLES.glob("*.py"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(names)}")
    arguments = parser.parse_args(words)
    unknown = sorted(set(arguments.names) - set(names))
    if unknown:
        parser.error(f"there is no examples/{unknown[0]}.py; examples: {', '.join(names)}")
    import nbformat

    for name in arguments.names or names:
        with tempfile.TemporaryDirectory() as folder:
            notebook = execute(name, Path(folder))
            text = nbformat.writes(notebook) + "\n"
            found = find_machine_paths(text, Path(folder))
        if found:
            print(
                f"error: examples/{name}.ipynb is not written: its outputs contain {', '.join(found)}", file=sys.stderr
            )
            return 1
        (EXAMPLES / f"{name}.ipynb").write_text(text)
        print(f"wrote examples/{name}.ipynb, {len(text) // 1024} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
