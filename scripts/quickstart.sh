#!/usr/bin/env bash
# From a fresh clone to a report: GRIT counts cycles with random walks and with simple paths, 5 seeds each, on the CPU.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=${1:-results/quickstart}
seeds=${SEEDS:-5}

echo "training $((2 * seeds)) small models, two at a time; Ctrl-C stops, and the same command resumes"
.venv/bin/python scripts/sweep.py configs/sweeps/quickstart.yaml --jobs 2 --seeds "$seeds" --out-dir "$out" &
sweep=$!
code=0
trap 'kill $sweep 2>/dev/null || true' TERM
trap : INT  # the terminal sends Ctrl-C to the sweep, too
wait $sweep || code=$?
while kill -0 $sweep 2>/dev/null; do wait $sweep || code=$?; done  # a signal ends wait before the runs are saved
[ "$code" -eq 0 ] || exit "$code"
echo
.venv/bin/python scripts/report.py "$out" --out "$out/report"
