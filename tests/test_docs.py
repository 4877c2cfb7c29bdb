"""What the documents show is run as it stands."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def block(text: str, language: str) -> str:
    return re.search(rf"```{language}\n(.*?)```", text, re.S).group(1)


def test_component_of_the_guide_trains(tmp_path):
    """In each model, of pairs and of nodes, and beside another encoding: every command of the page."""
    guide = (ROOT / "docs" / "adding_a_component.md").read_text()
    (tmp_path / "my_lab.py").write_text(block(guide, "python"))
    (tmp_path / "my_experiment.yaml").write_text(block(guide, "yaml"))
    commands = re.findall(r"^run (.*)$", guide, re.M)
    assert len(commands) == 4
    for command in commands:
        words = [sys.executable, str(ROOT / "main.py"), *command.split(), "num_threads=1", "accelerator=cpu"]
        env = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
        run = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stdout + run.stderr
    results = {
        name: read(tmp_path / f"results/{name}/0/result.json") for name in ("my_experiment", "csa", "gps", "both")
    }
    assert {name: result["encoding"] for name, result in results.items()} == {
        "my_experiment": "Hops", "csa": "Hops", "gps": "Hops", "both": "Hops+SPSE",
    }  # fmt: skip
    assert len({result["best"]["test"]["loss"] for result in results.values()}) == 4


def read(path):
    return json.loads(path.read_text())


def test_commands_of_the_page_on_running(tmp_path, monkeypatch):
    """In order, on fewer graphs: a run, its extension, a source of weights, and a run that starts from them."""
    page = (ROOT / "docs" / "running.md").read_text()
    commands = re.findall(r"^python main.py (--cfg configs/quickstart.*)$", page, re.M)
    assert len(commands) == 4
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT))
    import main

    for command in commands:
        words = [*command.split(), "dataset.cycles.num_graphs=[8,4,4]", "num_threads=1", "accelerator=cpu"]
        assert main.main(words) == 0, command
    assert read(tmp_path / "results/longer/0/result.json")["extended_from"] == [2]
    assert read(tmp_path / "results/tuned/0/result.json")["initial_weights"]["new"] == []


PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)  # comments in code are no headings
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_documents_link_to_files_and_headings_that_exist():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)]+)\)", page.read_text()):
            path, _, anchor = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in anchors(file), f"{page.name} links to {target}"


def test_page_for_other_code_runs(tmp_path, monkeypatch):
    """One block after the other, as a reader would."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "other_code.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    names = {}
    for number, code in enumerate(blocks):
        exec(compile(code, f"other_code.md, example {number}", "exec"), names)
    assert len(blocks) == 7
    assert names["ring"].rrwp_val[:, 1].sum() == 8 * 0.5 * math.log(2)  # S_1 of the ring, encoded
