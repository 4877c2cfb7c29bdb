#!/usr/bin/env bash
# From a fresh clone to a table: GRIT counts cycles with random walks and with simple paths, 5 seeds each, on the CPU.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
out=${1:-results/quickstart}
seeds=${SEEDS:-5}

train() {  # one configuration, all seeds; each line is marked with the encoding
    exec .venv/bin/python main.py --cfg "configs/quickstart/grit-$1.yaml" --repeat "$seeds" out_dir="$out" num_threads=1 \
        > >(trap '' INT; exec sed -u "s/^/$1 | /") 2>&1
}

echo "training into $out; if you stop it, the same command resumes"
train RWSE & rwse=$!
train SPSE & spse=$!
stop() {  # wait until both runs have saved a checkpoint
    trap '' INT TERM
    kill $rwse $spse 2>/dev/null || true
    wait $rwse $spse || true
    echo "stopped; the same command resumes"
    exit 75
}
trap stop INT TERM
trap 'kill $rwse $spse 2>/dev/null || true' EXIT
wait $rwse
wait $spse
echo
.venv/bin/python scripts/report.py "$out" --out "$out/report"
