"""Run what a sweep file lists and what is not done yet: python scripts/sweep.py configs/sweeps/table1.yaml --plan."""

import argparse
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from graphgps_spse.bench import pool, slurm
from graphgps_spse.bench.launch import Attempt, Task
from graphgps_spse.bench.states import State, ask_live_jobs, knows_slurm, plan, read_state
from graphgps_spse.bench.sweep import read_sweep, write_manifest
from graphgps_spse.cores import count_cores
from graphgps_spse.errors import RESUMABLE, SPSEError, exit_code_of
from graphgps_spse.training.signals import StopSignals

log = logging.getLogger("sweep")


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, or `words` in its place."""
    parser = argparse.ArgumentParser(
        description="Do the runs of a sweep file that are not done: each in a process of its own, with its log and all "
        "it produces in its run directory. The same command, again or elsewhere, goes on with what is missing.",
        epilog="exit codes: 0 all done, submitted or in other hands; 1 a run failed; 2 bad input; 75 stopped by a "
        "signal or a full disk, the same command goes on. Docs: docs/sweeps.md",
    )
    parser.add_argument("sweep", type=Path, help="sweep file, e.g. configs/sweeps/zinc.yaml")
    parser.add_argument("--plan", action="store_true", help="only print each run's state, hours to go and command")
    parser.add_argument("--retry", choices=["failed"], help="do the failed runs again, too")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs side by side; by default one for each GPU, or one")
    parser.add_argument(
        "--slurm", nargs="*", metavar="key=value", help="submit to SLURM, e.g. partition=gpu gpus=1 hours=15 array=32"
    )
    parser.add_argument("--dry-run", action="store_true", help="with --slurm: print a plain sbatch script instead")
    arguments = parser.parse_args(words)
    if arguments.jobs is not None and arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs} is below 1")
    if arguments.jobs is not None and arguments.slurm is not None:
        parser.error("--jobs is for this machine, --slurm for a cluster (array=N is its number at a time); give one")
    if arguments.dry_run and arguments.slurm is None:
        parser.error("--dry-run prints a SLURM script; give --slurm partition=... too")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Do what the command line asks for and return the exit code."""
    arguments = parse_arguments(words)
    stream = sys.stderr if arguments.dry_run else sys.stdout  # where nothing but the script belongs
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=stream, force=True)
    try:
        with StopSignals() as signals:
            return sweep(arguments, signals)
    except SPSEError as err:
        print(f"error: {err}", file=sys.stderr)
        return exit_code_of(err)
    except KeyboardInterrupt:
        print("stopped at once; runs go on from their last checkpoint with the same command", file=sys.stderr)
        return RESUMABLE


def sweep(arguments: argparse.Namespace, signals: StopSignals) -> int:
    """Read the file and the run directories, then plan, submit or run."""
    options = slurm.SlurmOptions.parse(arguments.slurm) if arguments.slurm is not None else None
    runs = read_sweep(arguments.sweep)
    gpus = pool.find_gpus() if options is None else []
    slots = pool.divide(arguments.jobs or max(1, len(gpus)), count_cores(), gpus)
    num_threads = options.cpus if options else slots[0].num_threads
    live_jobs = ask_live_jobs() if options or any(map(knows_slurm, runs)) else None
    states = [read_state(run, live_jobs) for run in runs]
    if arguments.plan:
        print("\n".join(plan(runs, states, num_threads)))
        return 0
    retry = arguments.retry == "failed"
    todo = [run for run, state in zip(runs, states) if state.needs_running(retry)]
    left_out = []
    for run, state in zip(runs, states):
        if state.kind != "done" and not state.needs_running(retry):
            left_out.append(state)
            log.warning("%s: %s, left as it is (%s)", run.run_dir, state.kind, state.detail)
    tasks, name = [run.task(num_threads) for run in todo], arguments.sweep.stem
    if not arguments.dry_run:
        write_manifest(name, runs)  # where nothing is left to do, too: fewer seeds may be intended now
    if not tasks:
        log.info("%s: nothing to do; %d of %d runs are done", name, len(runs) - len(left_out), len(runs))
        return exit_code_for(left_out)
    if arguments.dry_run and options:
        print(slurm.script(tasks, options, name))
        return 0
    if options:
        jobs = slurm.submit(tasks, options, name, todo[0].out_dir / "slurm")
        log.info("submitted %d runs, jobs %s to %s; --plan shows how far they are", len(jobs), jobs[0], jobs[-1])
        return exit_code_for(left_out)
    log.info("%d of %d runs to do, %d at a time; results in %s", len(tasks), len(runs), len(slots), todo[0].out_dir)
    by_folder = {run.run_dir: run for run in todo}

    def start(task: Task, environment: dict[str, str]) -> Attempt | None:
        run = by_folder[task.folder]  # its state now: another sweep may have been at it
        return Attempt.start(task, environment, is_wanted=lambda: read_state(run, live_jobs).needs_running(retry))

    tally = pool.run_tasks(tasks, slots, should_stop=lambda: bool(signals.received), start=start)
    log.info(
        "%d done now, %d failed, %d stopped, %d in other hands",
        *(len(names) for names in (tally.done, tally.failed, tally.stopped, tally.elsewhere)),
    )
    if tally.stopped:
        log.info(
            "%s; go on with: %s",
            signals.received or "some were killed, or the disk was full",
            shlex.join(("python", *sys.argv)),
        )
        return RESUMABLE
    if tally.failed:
        log.info("failed runs are done again with --retry failed: %s", ", ".join(tally.failed))
    return 1 if tally.failed else exit_code_for(left_out)


def exit_code_for(left_out: Sequence[State]) -> int:
    """Return 2 if a folder holds another configuration's run, 1 if a run has failed, or 0."""
    kinds = {state.kind for state in left_out}
    return 2 if "differs" in kinds else 1 if "failed" in kinds else 0


if __name__ == "__main__":
    sys.exit(main())
