"""Names in YAML become objects in code: one registry for each kind of component."""

import importlib
import pkgutil
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from graphgps_spse.errors import ConfigError


def nearest(name: str, known: list[str]) -> str:
    """Return " Did you mean 'x'?" for the closest of `known`, or an empty string."""
    close = get_close_matches(name.lower(), [k.lower() for k in known], n=1, cutoff=0.5)
    matches = [k for k in known if close and k.lower() == close[0]]
    return f" Did you mean '{matches[0]}'?" if matches else ""


class Registry:
    """Components of one kind, found in the modules of one folder of the package.

    The folder is imported at the first lookup, so a component exists because its file does, and a file that
    fails to import raises there and then.
    """

    def __init__(self, kind: str, package: str, key: str = "") -> None:
        """`key` is what names a component in YAML; empty where something else chooses it."""
        self.kind, self.package, self.key = kind, package, key
        self._objects: dict[str, Any] = {}
        self._loaded = False

    def register(self, name: str) -> Any:
        """Decorate a class or function to make it known as `name`."""

        def add(obj: Any) -> Any:
            if name in self._objects:
                raise ValueError(f"two components are registered as {self.kind} '{name}': {self._objects[name]}, {obj}")
            self._objects[name] = obj
            return obj

        return add

    def modules(self) -> list[ModuleType]:
        """Return the modules of the folder and of the folders in it, sorted by name."""
        folder = importlib.import_module(self.package)
        names = (module.name for module in pkgutil.walk_packages(folder.__path__, f"{self.package}."))
        return [importlib.import_module(name) for name in sorted(names)]

    def _load(self) -> None:
        if not self._loaded:
            self.modules()
            self._loaded = True

    def names(self) -> list[str]:
        """Return every registered name, sorted."""
        self._load()
        return sorted(self._objects)

    def get(self, name: str) -> Any:
        """Return the component called `name`. Raises ConfigError that names the key, the nearest and all names."""
        known = self.names()
        if name not in self._objects:
            listing, place = ", ".join(known), f"{self.key}: " if self.key else ""
            raise ConfigError(f"{place}unknown {self.kind} '{name}'.{nearest(name, known)} Known: {listing}")
        return self._objects[name]


datasets = Registry("data set", "graphgps_spse.data", "dataset.format")
encodings = Registry("encoding", "graphgps_spse.encodings", "posenc_NAME.enable")
models = Registry("model", "graphgps_spse.models", "model.type")
node_encoders = Registry("node encoder", "graphgps_spse.models", "dataset.node_encoder_name")
edge_encoders = Registry("edge encoder", "graphgps_spse.models", "dataset.edge_encoder_name")
positional_encoders = Registry("positional encoder", "graphgps_spse.models", "posenc_NAME.model")
heads = Registry("head", "graphgps_spse.models", "gnn.head")
tasks = Registry("task", "graphgps_spse.training")
optimizers = Registry("optimizer", "graphgps_spse.training", "optim.optimizer")
schedulers = Registry("scheduler", "graphgps_spse.training", "optim.scheduler")
loggers = Registry("logger", "graphgps_spse.training")

ALL = (
    datasets,
    encodings,
    models,
    node_encoders,
    edge_encoders,
    positional_encoders,
    heads,
    tasks,
    optimizers,
    schedulers,
    loggers,
)
