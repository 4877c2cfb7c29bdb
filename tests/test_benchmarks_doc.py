"""The tables of benchmarks/README.md have the figures of the records."""

import json
import re
from pathlib import Path

import pytest
from scripts_at import load_script

FOLDER = Path(__file__).parents[1] / "benchmarks"


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


ROWS = [cells_of(line) for line in (FOLDER / "README.md").read_text().splitlines()]


def records(name: str) -> dict[tuple, dict]:
    found = json.loads((FOLDER / "results" / name).read_text())["results"]
    return {(f"{r['model']} {r['data']} {r['batch_size']}", r.get("allocator")): r["runs"] for r in found}


def numbers(cell: str) -> list[float]:
    return [float(number.replace(",", "")) for number in re.findall(r"\d[\d,]*\.?\d*", cell.replace(", ", " "))]


def close(value: float) -> object:
    """Equal to a ratio with two decimal places."""
    return pytest.approx(value, rel=0, abs=5.1e-3)


def test_training_steps():
    found = {key: row for row in ROWS if len(row) >= 6 and (key := (row[0], row[1])) in records("training.json")}
    assert found.keys() == records("training.json").keys()
    for key, runs in records("training.json").items():
        times = [run["step_cpu_ms"] for run in runs.values()]
        row = found[key]
        shown = [x for cell in row[2:-2] for x in numbers(cell)]
        assert shown == [pytest.approx(time, rel=0, abs=0.51) for time in times], key
        assert numbers(row[-2]) == [close(time / times[0]) for time in times[1:]], key
        assert numbers(row[-1]) == [pytest.approx(run["peak_MiB"], rel=0, abs=0.51) for run in runs.values()], key


def test_steps_with_several_threads():
    found = {row[0]: row for row in ROWS if len(row) == 8 and re.fullmatch(r"(GPS|CSA|GRIT) \d+", row[0])}
    for (name, _), runs in records("threads.json").items():
        row = found.pop(name.replace(" zinc", ""))
        ours, official = (
            [[runs[who][n][key] for n in "12"] for key in ("step_wall_ms", "fastest_wall_ms")]
            for who in ("ours", "official")
        )
        shown = [x for cell in row[1:] for x in numbers(cell)]
        gains = [ours[0][0] / ours[0][1], ours[1][0] / ours[1][1]]
        ratios = [theirs / mine for mine, theirs in zip(ours[0] + ours[1], official[0] + official[1])]
        times = [pytest.approx(time, rel=0, abs=0.51) for time in ours[0] + official[0]]
        expected = [*times[:2], *map(close, gains), *times[2:], close(official[0][0] / official[0][1])]
        assert shown == [*expected, *map(close, ratios)], name
    assert not found


def test_memory():
    found = json.loads((FOLDER / "results/memory.json").read_text())["configurations"]
    rows = {row[0]: row for row in ROWS if row[0] in found and len(row) == 7}
    assert rows.keys() == found.keys()
    for name, record in found.items():
        batch, pairs, predicted, measured, ratio, gpu = (numbers(cell)[0] for cell in rows[name][1:])
        assert (batch, pairs) == (record["batch_size"], record["pairs"])
        for shown, key in ((predicted, "predicted"), (measured, "measured"), (gpu, "predicted_gpu")):
            assert shown == pytest.approx(record[key] / 2**20, rel=0, abs=0.51), name
        assert ratio == close(record["predicted"] / record["measured"])


def test_operations_of_a_step_on_a_gpu():
    record = json.loads((FOLDER / "results/gpu_operations.json").read_text())
    before = record["before_kernels"]
    page = (FOLDER.parent / "docs" / "gpu.md").read_text()
    shown = {row[0]: row[1:] for row in ROWS if len(row) == 4 and f"{row[0]}-zinc" in before}
    predicted = {row[0]: row[1:] for line in page.splitlines() if len(row := cells_of(line)) == 7}
    for name, ways in record["models"].items():
        (model, _), both = name.split("-"), [ways[kind]["forward_and_backward"] for kind in ("plain", "kernels")]
        same = both[0] == both[1]  # no kernels
        with_kernels, model = ways["kernels"], {"GNNPlus": "GNN+"}.get(model, model)
        assert predicted[model] == [
            f"{both[0]:,}",
            "none" if same else f"{both[1]:,}",
            f"{with_kernels['bytes'] / 1e9:.2f} GB",
            f"{with_kernels['flop'] / 1e9:.1f} G",
            f"{with_kernels['predicted_ms']:.1f} ms",
            str(with_kernels["predicted_steps_per_second"]),
        ], model
        if not same:
            assert shown.pop(model) == [f"{number:,}" for number in (before[name], *both)]
            share = f"{100 * both[1] / before[name]:.0f} %"
            assert f"{share} ({model})" in page
    assert not shown and 100 * record["models"]["GRIT-zinc"]["kernels"]["forward_and_backward"] <= 60 * 1901


def test_steps_on_a_gpu():
    record = json.loads((FOLDER / "results/gpu_check.json").read_text())["rows"]
    page = (FOLDER.parent / "docs" / "gpu.md").read_text()
    cells = [cells_of(line) for line in page.splitlines()]
    shown, timed = {row[0]: row[1:] for row in cells if "/" in row[0]}, 0
    for row in record:
        assert not row["wrong"] and row["resumes"]
        if "auto" in row:
            both, timed = [row["auto"], row["plain"]], timed + 1
            speeds = [run["steps_per_second"] for run in both]
            assert shown[row["configuration"].removesuffix(".yaml")] == [
                *(f"{speed:.1f}" for speed in speeds),
                f"{speeds[0] / speeds[1]:.2f}",
                *(f"{run['peak_bytes'] / 2**20:,.0f}" for run in both),
                ", ".join(f"{run['predicted_bytes'] / run['peak_bytes']:.2f}" for run in both),
            ]
    assert f"All {len(record)} configurations pass all checks" in page and f"with {timed} of {len(record)} done" in page
    for line, key, what in [
        ("predictions in float32", "errors", "predictions"),
        ("gradient in float32", "errors", "gradient"),
        ("predictions with `train.amp: bf16`", "errors_bf16", "predictions"),
        ("gradient with `train.amp: bf16`", "errors_bf16", "gradient"),
    ]:
        (found,) = [row[1:] for row in cells if row[0].startswith(line)]
        assert [float(cell) for cell in found] == [
            pytest.approx(max(row[key][what][who] for row in record), rel=0.06) for who in ("kernels", "plain")
        ]


def test_epochs_on_a_gpu():
    page = (FOLDER.parent / "docs" / "gpu.md").read_text()
    record = json.loads((FOLDER / "results/gpu_epochs.json").read_text())["configurations"]
    assert load_script("gpu_tables", "benchmarks").renewed(page) == page and len(record) == 48
    runs = {name: case["runs"] for name, case in record.items()}
    slower = [name for name, ways in runs.items() if ways["plain"]["step_ms"] < ways["kernels"]["step_ms"]]
    assert slower == ["GPS/cifar10-SPSE"] and "in 47 of 48 configurations" in page
    without = [name for name, case in record.items() if "no_graphs" in case]
    assert without == ["GRIT/pattern-RWSE", "GRIT/cluster-RWSE"] and not any(
        "wrong" in case for case in record.values()
    )
    errors = {
        dtype: [case.get(f"graph_error_{dtype}", 0) for name, case in record.items() if name not in without]
        for dtype in ("float32", "float64")
    }
    assert max(errors["float64"]) < 4e-9 and max(errors["float32"]) < 0.004
    memory = json.loads((FOLDER / "results/memory.json").read_text())["configurations"]
    ratios = [memory[name]["predicted_gpu"] / case["peak"]["kernels"] for name, case in record.items()]
    assert min(ratios) == pytest.approx(0.945, abs=5e-3) and max(ratios) == pytest.approx(1.07, abs=5e-3)
    of_zinc = [runs[f"{model}/zinc-RWSE"] for model in ("GRIT", "CSA", "GPS")]
    gains = [ways["kernels"]["step_ms"] / ways["graphs"]["step_ms"] for ways in of_zinc]
    assert (round(min(gains), 1), round(max(gains), 1)) == (3.8, 4.6)
    official = [ways["official"]["step_ms"] / ways["kernels"]["step_ms"] for ways in of_zinc]
    assert (round(min(official), 1), round(max(official), 1)) == (1.8, 2.0)


def test_registers_of_gpu_kernels():
    kernels = json.loads((FOLDER / "results/gpu_kernels.json").read_text())["kernels"]
    text = " ".join((FOLDER / "README.md").read_text().split())
    grit, csa = (
        max(k["registers"] for k in kernels if k["operation"] == operation)
        for operation in ("grit_pairs", "chromatic_attention")
    )
    assert f"GRIT take at most {grit} registers of a thread, those of CSA {csa}." in text
    assert (
        not any(k["spilled_bytes"] for k in kernels) and f"None of the {len(kernels)} compiled kernels spills" in text
    )
