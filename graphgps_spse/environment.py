"""Where and with what a run is carried out: device, threads, versions, commit."""

import platform
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from graphgps_spse.cores import count_cores
from graphgps_spse.errors import ConfigError
from graphgps_spse.options import Options, option
from graphgps_spse.version import __version__

PACKAGES = ("torch", "torch-geometric", "numba", "numpy", "scipy", "ogb", "rdkit")


class DeviceOptions(Options, section=""):
    """Where the model is trained."""

    accelerator: str = option("auto", "device: cpu, cuda or cuda:N; auto: the first CUDA device, or else the CPU")


def pick_device(accelerator: str, local_rank: int = 0) -> torch.device:
    """Return the device that `accelerator` (auto, cpu, cuda, cuda:1) names. Raises ConfigError where there is none.

    Of several processes on a machine, number `local_rank` gets the CUDA device of that number: cuda:N names one of all.
    """
    kind, _, number = accelerator.partition(":")
    if accelerator == "auto":
        kind = "cuda" if torch.cuda.is_available() else "cpu"
    elif kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ConfigError(f"accelerator: '{accelerator}' is none of auto, cpu, cuda, cuda:N")
    if kind == "cpu":
        return torch.device("cpu")
    index = int(number or local_rank)
    if index >= torch.cuda.device_count():
        cure = "start fewer processes, or set accelerator=cuda:0 where each sees only a device of its own"
        raise ConfigError(
            f"accelerator: {accelerator} asks for CUDA device {index} and torch sees {torch.cuda.device_count()} here; "
            + (cure if local_rank and not number else "set accelerator to cpu, or to a device that is here")
        )
    return torch.device("cuda", index) if number or local_rank else torch.device("cuda")


def count_threads(num_threads: int, num_processes: int = 1) -> int:
    """Return `num_threads`, or for 0 one thread for each core that is there for one of `num_processes` processes."""
    if num_threads:
        return num_threads
    return max(1, count_cores() // num_processes)


def describe_environment(device: torch.device, num_threads: int) -> dict[str, Any]:
    """Return what a record keeps of this machine and this code."""
    return {
        "command": sys.argv,
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "processor": processor_name(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "num_threads": num_threads,
        "python": platform.python_version(),
        "graphgps_spse": __version__,
        "commit": find_commit(),
        **{name: _version(name) for name in PACKAGES},
    }


def package_versions() -> dict[str, str]:
    """Return the versions of this package and of those that its numbers rest on."""
    return {"graphgps_spse": __version__, **{name: _version(name) for name in PACKAGES}}


def processor_name() -> str:
    """Return the model of the CPU as the system names it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or platform.machine()


def find_commit() -> str:
    """Return the commit of the checkout that this package lies in, or "".

    "+changes" follows where files differ from it, or where modules lie in the package that it does not have: components
    are found by their files, whether git knows them or not.
    """
    git = ["git", "-C", str(Path(__file__).parent)]
    try:  # installed below another project's checkout, this file is none of that project's
        subprocess.run([*git, "ls-files", "--error-unmatch", Path(__file__).name], capture_output=True, check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = ""
        for words in (["status", "--porcelain", "-uno"], ["ls-files", "--others", "--exclude-standard", "*.py"]):
            changes += subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""  # an installed package, or no git here
    return head + ("+changes" if changes.strip() else "")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
