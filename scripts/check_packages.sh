#!/usr/bin/env bash
# Build wheel and sdist, install them into fresh environments, count with the core alone and train with the extra train.
# Downloads everything that the environments need. ./scripts/check_packages.sh [core] checks the core only.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python3}
unset PYTHONPATH  # it could name the source
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
install() { "$temporary/$1/bin/python" -m pip install --quiet --disable-pip-version-check "${@:2}"; }

"$python" -m venv "$temporary/build"
install build build
"$temporary/build/bin/python" -m build --quiet --outdir "$temporary/dist" .  # the wheel is built from the sdist
wheel=$(echo "$temporary"/dist/*.whl)
ls -s "$temporary/dist"

"$python" -m venv "$temporary/core"
install core "$wheel"
grep '^torch==' requirements.txt > "$temporary/constraints.txt"
cd "$temporary"  # away from the source
core/bin/python - <<'PYTHON'
import sys
import graphgps_spse as gs

paths = gs.count_simple_paths([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]], num_nodes=6, max_length=5)
assert paths.counts[:, 0, 1].tolist() == [1, 0, 0, 0, 1]
try:
    gs.train
except ImportError as err:
    assert 'pip install ".[train]"' in str(err), err
assert "torch" not in sys.modules
PYTHON
code=0
core/bin/graphgps-spse --cfg none.yaml 2> message || code=$?
[ "$code" = 2 ] && grep -q 'pip install "\.\[train\]"' message
core/bin/python -m pip list --disable-pip-version-check --format=freeze | grep -v '^pip=\|^setuptools=' | tr '\n' ' '
echo "the core counts"
[ "${1:-}" = core ] && exit

"$python" -m venv full
install full "$wheel[train]" --constraint constraints.txt  # the version of PyTorch that is tested
configs=$(full/bin/python -c "import graphgps_spse; print(graphgps_spse.__path__[0] + '/configs')")
full/bin/graphgps-spse --cfg "$configs/quickstart/grit-SPSE.yaml" "dataset.cycles.num_graphs=[40,20,20]" \
    optim.max_epoch=2 num_threads=1 accelerator=cpu
test -f results/grit-SPSE/0/result.json
echo "the extra train trains"
