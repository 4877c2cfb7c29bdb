"""One flipped bit in a file that a command reads back: the command says so, or it changes nothing."""

import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from faults.lab import (
    TASKS,
    Lab,
    Outcome,
    Task,
    complaint,
    contents,
    copy_results,
    differences,
    files_of,
    last_line,
    lost_files,
    with_finished_seed,
)


@dataclass(frozen=True)
class Target:
    """Files that a task reads; `parent`: the task that laid them."""

    pattern: str
    task: Task


def with_interrupted_run(lab: Lab, folder: Path) -> None:
    """A run that was killed when its second epoch was recorded, beside a finished one."""
    with_finished_seed(lab, folder)
    source = lab.folder / "interrupted"
    if not source.exists():
        task = TASKS["train"]
        made = lab.lay(task)
        trace = made.with_suffix(".trace")
        lab.run(task, made, fault=[str(made), "none", 0, str(trace)])
        lines = trace.read_text().splitlines()
        number = 1 + max(k for k, line in enumerate(lines) if line.startswith("did write") and "train/stats" in line)
        shutil.rmtree(made.parent)
        made = lab.lay(task)
        assert lab.run(task, made, fault=[str(made), "kill", number]).returncode == -9
        made.parent.rename(source)
    shutil.copytree(source / "lab" / "results" / "tiny" / "0", folder / "results" / "tiny" / "0")


def with_encodings(lab: Lab, folder: Path) -> None:
    copy_results(lab, folder, TASKS["encode"])


RESUMED = Task("resume", TASKS["train"].words, with_interrupted_run)
ENCODED = Task("train encoded", TASKS["train"].words, with_encodings)
TARGETS = (
    Target("results/tiny/0/checkpoint.pt", RESUMED),
    Target("results/tiny/0/checkpoint-previous.pt", RESUMED),
    Target("results/tiny/0/*/stats.json", RESUMED),
    Target("results/tiny/0/env.json", RESUMED),
    Target("results/tiny/0/config.yaml", RESUMED),
    Target("encodings/*/*.arrow", ENCODED),
    Target("encodings/*/manifest.json", ENCODED),
    Target("results/tiny/1/result.json", TASKS["report"]),
    Target("results/tiny/1/*/stats.json", TASKS["report"]),
)


def bit_flips(lab: Lab, chance: random.Random, targets: tuple[Target, ...] = TARGETS) -> Iterator[Outcome]:
    """A random bit of every kind of file, in turn."""
    while True:
        for target in targets:
            folder = lab.lay(target.task)
            path = chance.choice(sorted(folder.glob(target.pattern)))
            content = bytearray(path.read_bytes())
            if not content:
                continue
            place, bit = chance.randrange(len(content)), chance.randrange(8)
            content[place] ^= 1 << bit
            path.write_bytes(content)
            yield judge(lab, target.task, folder, path, f"bit {bit} of byte {place} of {path.relative_to(folder)}")


def judge(lab: Lab, task: Task, folder: Path, path: Path, fault: str) -> Outcome:
    """Run the command that reads the file: its results are those without the flip, or it names the file."""
    before = {name: content for name, content in files_of(folder).items() if folder / name != path}
    command = lab.run(task, folder)
    name = str(path.relative_to(folder))
    problems = [complaint(command), *lost_files(folder, before)]
    differing = (
        ["it was not done"]
        if command.returncode
        else differences(contents_but(folder, name), reference(lab, task, name))
    )
    is_told = any(word in command.output for word in (path.name, str(path.parent.relative_to(folder))))
    kind = "lost" if any(problems) else "survived" if not differing else "refused" if is_told else "wrong"
    note = "; ".join(filter(None, [*problems, *differing])) if kind in ("lost", "wrong") else ""
    if kind in ("survived", "refused"):
        shutil.rmtree(folder.parent)
    return Outcome("bit flips", f"{task.name}: {fault}", kind, note or (last_line(command.output) if differing else ""))


def contents_but(folder: Path, name: str) -> dict:
    """What a folder holds, without the damaged file."""
    (folder / name).unlink(missing_ok=True)
    return contents(folder)


def reference(lab: Lab, task: Task, name: str) -> dict:
    return {other: content for other, content in lab.reference(task).items() if other != name}
