#!/usr/bin/env bash
# Run tests with the oldest versions of all libraries that pyproject.toml allows. Arguments go to pytest.
# TORCH=2.13.0 names another version of PyTorch than the oldest, for example one whose file is at hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
environment=${OLDEST_ENVIRONMENT:-.venv-oldest}
[ -x "$environment/bin/python" ] || "${PYTHON:-python3.11}" -m venv "$environment"
"$environment/bin/python" - > "$environment/oldest.txt" <<'PYTHON'
import os, re, tomllib

project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
lines = project["dependencies"] + [line for name in extras if name not in ("all", "docs", "gpu") for line in extras[name]]
for line in lines:
    name, _, version = line.partition(">=")
    if version:  # other lines name extras of this package
        version = os.environ.get("TORCH", version) if name == "torch" else version
        newest = name in ("build", "hatchling", "mypy", "ruff")  # programs
        print(name if newest else f"{name}=={version}{'' if version.count('.') > 1 else '.*'}")
PYTHON
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check -r "$environment/oldest.txt"
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 WANDB_MODE=offline WANDB_SILENT=true PYTHONPATH=$PWD
"$environment/bin/python" -m pytest -n "${PYTEST_WORKERS:-2}" "$@"
