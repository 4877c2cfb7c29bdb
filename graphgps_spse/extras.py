"""The extras of the package, and messages about libraries that are not installed."""

from importlib.util import find_spec

from graphgps_spse.errors import MissingLibraryError

EXTRAS = {
    "train": "torch torch_geometric scipy threadpoolctl yacs yaml pyarrow sklearn tqdm tensorboard wandb",
    "molecules": "rdkit ogb",
    "images": "skimage",
    "reports": "matplotlib",
    "slurm": "submitit",
    "gpu": "triton",
    "trees": "lightgbm",
    "search": "optuna",
    "docs": "mkdocs material mkdocstrings nbclient nbformat ipykernel",
    "test": "pytest hypothesis networkx rustworkx",
}
"""Extra -> the libraries that it installs, by the names under which Python imports them."""


def install_command(library: str) -> str:
    """Return the pip command that installs a library in a clone; "" for a library that no extra installs."""
    for extra, libraries in EXTRAS.items():
        if library in libraries.split():
            return f'pip install ".[{extra}]"'
    return ""


def missing_library(err: ModuleNotFoundError) -> MissingLibraryError | None:
    """Return the error for people about an import that failed; None if no extra installs the library."""
    library = (err.name or "").partition(".")[0]
    return _not_installed(library) if install_command(library) else None


def require(library: str) -> None:
    """Raise MissingLibraryError, which names the pip command, unless the library of an extra is installed."""
    if find_spec(library) is None:
        raise _not_installed(library)


def _not_installed(library: str) -> MissingLibraryError:
    return MissingLibraryError(
        f"{library} is not installed; in a clone of graphgps_spse, run: {install_command(library)}"
    )
