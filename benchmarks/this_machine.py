"""Environment of a benchmark."""

import platform
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def peak_memory() -> float:
    """Return the peak resident memory of this program in MiB (getrusage would include the parent before exec)."""
    line = next(line for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def environment() -> dict[str, Any]:
    """Return processor, versions, commit and command. Absolute paths are removed from the command."""
    cpuinfo = Path("/proc/cpuinfo")
    models = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")] if cpuinfo.exists() else []

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    options = [word for word in sys.argv[1:] if not Path(word).is_absolute()]  # no paths of this machine
    return {
        "cpu": models[0].split(":")[1].strip() if models else platform.processor(),
        "cores": len(models),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba", "networkx", "rustworkx") if find_spec(name)},
        "commit": git("rev-parse", "HEAD") or "none",
        "uncommitted_changes": bool(git("status", "--porcelain", "graphgps_spse", "benchmarks/*.py")),
        "command": " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *options]),
    }
