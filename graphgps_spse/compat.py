"""Configurations of GraphGPS, GRIT and CSA, read as they are: each of their keys is kept, renamed, ignored or refused.

A file is one of theirs if it holds a key that only they know. Then what it leaves out has their default, keys that
nothing here reads are no error, and whatever was not simply kept is said. compat_keys.py holds the keys.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from graphgps_spse.compat_keys import (
    ABSENT,
    ATTENTION_PARTS,
    DATASETS,
    DEFAULTS,
    IGNORED,
    LOCAL_PARTS,
    MINIMISED,
    ONLY,
    OURS,
    RENAMED,
    TRANSLATED,
)
from graphgps_spse.config_files import Leaves
from graphgps_spse.errors import ConfigError

_DEFAULT = "GraphGPS's default of"


@dataclass
class Reading:
    """What files and overrides say, in this project's keys."""

    leaves: Leaves = field(default_factory=dict)
    """Everything that is set, overrides last."""
    own: set[str] = field(default_factory=set)
    """Keys of the file itself, not of its base."""
    words: set[str] = field(default_factory=set)
    """Keys of the overrides."""
    excused: set[str] = field(default_factory=set)
    """Keys that nothing need read, as their file is an ancestor's."""
    changed: list[str] = field(default_factory=list)
    """What is read as something else."""
    ignored: dict[str, list[str]] = field(default_factory=dict)
    """Keys that are ignored, by the reason."""

    def notes(self) -> list[str]:
        """Return lines that say what was not simply kept; none for a file of this project."""
        return [*self.changed, *(f"ignored, as {why}: {', '.join(keys)}" for why, keys in self.ignored.items())]

    def put(self, key: str, value: Any, where: str, note: str = "") -> None:
        """Set a key to what another one, or another value, means."""
        self.leaves[key] = (value, where)
        self.excused.add(key)
        self.changed += [f"{where}: {note}"] if note and not where.startswith(_DEFAULT) else []

    def ignore(self, key: str, why: str) -> None:
        """Note that a key is ignored."""
        keys = self.ignored.setdefault(why, [])
        keys += [key] if key not in keys else []

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value that is set, or `default`."""
        return self.leaves.get(key, (default, ""))[0]


def read_leaves(base: Leaves, own: Leaves, words: Leaves) -> Reading:
    """Translate the keys of a file, of its base and of the overrides. Raises ConfigError for what cannot be had."""
    is_theirs = any(_is_theirs(key) for key in (*base, *own))
    if is_theirs:  # before its keys: another data set is the likeliest reason for a key that cannot be had
        _check_dataset({**base, **own, **words})
    reading = Reading()
    base_kept, own_kept, words_kept = (_translate_keys(leaves, reading) for leaves in (base, own, words))
    reading.leaves, reading.words = {**base_kept, **own_kept, **words_kept}, set(words_kept)
    if is_theirs:
        is_renamed = {_renamed(key) for key in (*base, *own) if _renamed(key) != key}
        reading.excused = {key for key in (*base_kept, *own_kept) if key in is_renamed or not _lies_in(key, OURS)}
        _fill_defaults(reading)
        _translate_values(reading)
    _translate_switches(reading)
    reading.own = set(own_kept) & set(reading.leaves)
    reading.words &= set(reading.leaves)
    reading.excused -= reading.words
    return reading


def _lies_in(key: str, names: Iterable[str]) -> bool:
    """Whether `key` is one of `names` or lies in a section that is."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _renamed(key: str) -> str:
    for old, new in RENAMED.items():
        if _lies_in(key, (old,)):
            return new + key[len(old) :]
    return key


def _note_rename(key: str, where: str, reading: Reading) -> None:
    """Note the new name of a key, or of its whole section at the section's first key."""
    for old, new in RENAMED.items():
        note = f"'{old}' is read as '{new}'"
        if _lies_in(key, (old,)) and not any(line.endswith(note) for line in reading.changed):
            reading.changed.append(f"{where}: {note}")


def _is_theirs(key: str) -> bool:
    """Whether only the ancestors have this key."""
    absent = [f"posenc_{name}" for name in ABSENT]
    ignored = [name for names in IGNORED.values() for name in names]
    return key in ONLY or _lies_in(key, (*RENAMED, *absent, *ignored, *TRANSLATED))


def _translate_keys(leaves: Leaves, reading: Reading) -> Leaves:
    """Rename, ignore or refuse keys, one at a time."""
    kept: Leaves = {}
    for old, (value, where) in leaves.items():
        key = _renamed(old)
        _note_rename(old, where, reading)
        absent = [name for name in ABSENT if _lies_in(key, (f"posenc_{name}",))]
        reasons = [why for why, names in IGNORED.items() if _lies_in(key, names)]
        if absent:
            if key == f"posenc_{absent[0]}.enable" and value:
                raise ConfigError(
                    f"{where}: '{key}': the encoding {absent[0]} is not offered here; enable posenc_RWSE, "
                    "posenc_LapPE or posenc_SPSE, or write it: docs/adding_a_component.md"
                )
            reading.ignore(old, "the encoding is not enabled")
        elif key in ONLY:
            _check_only(old, value, where, *ONLY[key])
        elif reasons:
            reading.ignore(old, reasons[0])
        else:
            kept[key] = (value, where)
    return kept


def _check_only(key: str, value: Any, where: str, values: tuple[Any, ...], cure: str) -> None:
    if not any(value == known and isinstance(value, bool) == isinstance(known, bool) for known in values):
        known = " or ".join(repr(known) for known in values)
        raise ConfigError(f"{where}: '{key}' is {value!r}, but only {known} is offered here: {cure}")


def _fill_defaults(reading: Reading) -> None:
    """Give what their file leaves out the default that it has there."""
    off = [f"posenc_{name}" for name in ("LapPE", "RWSE") if not reading.get(f"posenc_{name}.enable")]
    is_grit = reading.get("model.type") == "GritTransformer"  # its default of reduce_factor is ours
    off += [] if "plateau" in str(reading.get("optim.scheduler")) and not is_grit else ["optim.reduce_factor"]
    missing = {k: v for k, v in DEFAULTS.items() if k not in reading.leaves and not _lies_in(k, off)}
    defaults = {key: (value, f"{_DEFAULT} '{key}'") for key, value in missing.items()}
    reading.leaves = {**defaults, **reading.leaves}
    if missing:
        listing = ", ".join(f"{key} {value!r}" for key, value in missing.items())
        reading.changed.append(f"not set, so as in GraphGPS: {listing}")


def _translate_switches(reading: Reading) -> None:
    """Turn keys into what they mean that overrides of any file may hold too."""
    leaves = reading.leaves
    if "wandb.use" in leaves:
        use, where = leaves.pop("wandb.use")
        mode = reading.get("wandb.mode", "online") if use else "disabled"
        reading.put("wandb.mode", mode, where, f"'wandb.use: {use}' is read as wandb.mode: {mode}")
    if "metric_agg" in leaves:
        (agg, where), metric = leaves.pop("metric_agg"), reading.get("metric_best", "auto")
        right = "argmin" if metric in MINIMISED else "argmax"
        if metric != "auto" and agg != right:
            raise ConfigError(f"{where}: 'metric_agg' is {agg!r}, but the best {metric} is the {right[3:]}imum")
        reading.ignore("metric_agg", "metric_best says which is best")


def _translate_values(reading: Reading) -> None:
    """Translate values that mean something else, or nothing, here. Raises ConfigError for what cannot be had."""
    mode, where = reading.leaves.get("train.mode", ("custom", ""))
    cure = "train with custom, evaluate a finished run with eval, predict with scripts/predict.py"
    _check_only("train.mode", mode, where, ("custom", "eval"), cure)
    if "gnn.l2norm" in reading.leaves and "gnn.l2norm" not in reading.words:
        del reading.leaves["gnn.l2norm"]
        reading.ignore("gnn.l2norm", "GraphGym's heads normalise their hidden rows whatever it says")
    is_csa = _translate_model(reading)
    _translate_head(reading, is_csa)
    _translate_edge_encoder(reading, is_csa)
    for name in list(_unread(reading, is_csa)):
        where = reading.leaves[f"posenc_{name}.enable"][1]
        reading.put(f"posenc_{name}.enable", False, where, f"{name} is not computed, as no encoder reads it")
    accelerator, where = reading.leaves.get("accelerator", ("", ""))
    if accelerator == "cuda:0":
        note = "'accelerator: cuda:0' is read as auto, which is the same where there is a CUDA device"
        reading.put("accelerator", "auto", where, note)


def _check_dataset(leaves: Leaves) -> None:
    data_format, where = leaves.get("dataset.format", ("PyG", "dataset.format is not set"))
    name = leaves.get("dataset.name", ("none", ""))[0]
    if name in DATASETS.get(str(data_format), ()) or not (data_format == "OGB" or str(data_format).startswith("PyG")):
        return
    known = "; ".join(f"{key}: {', '.join(names)}" for key, names in DATASETS.items())
    raise ConfigError(
        f"{where}: 'dataset.format: {data_format}' with 'dataset.name: {name}' is not offered here. Known are {known}. "
        "For graphs of your own set dataset.format to smiles or folder: docs/own_data.md"
    )


def _translate_model(reading: Reading) -> bool:
    """Tell CSA from GPS, and return whether it is CSA."""
    (model, where), (layer, layer_where) = reading.leaves["model.type"], reading.leaves["gt.layer_type"]
    if model == "GritTransformer":
        del reading.leaves["gt.layer_type"]
        return False
    if model not in ("GPSModel", "CSAModel"):
        raise ConfigError(
            f"{where}: 'model.type' is {model!r}; the models here are GPSModel (CSA too), GritTransformer"
        )
    local, _, attention = str(layer).partition("+")
    if local not in LOCAL_PARTS or attention not in ATTENTION_PARTS:
        raise ConfigError(
            f"{layer_where}: 'gt.layer_type' is {layer!r}; offered are {', '.join(LOCAL_PARTS)} for the part before "
            f"the +, {', '.join(ATTENTION_PARTS)} for the part after it"
        )
    if attention == "CSA" and model != "CSAModel":
        reading.put("model.type", "CSAModel", where, f"'model.type: {model}' with {layer} is read as CSAModel")
    return attention == "CSA"


def _translate_head(reading: Reading, is_csa: bool) -> None:
    head, where = reading.leaves["gnn.head"]
    if head == "default":
        new = "inductive_node" if reading.get("dataset.name") in ("PATTERN", "CLUSTER") else "graph"
        reading.put("gnn.head", new, where, f"'gnn.head: {head}' is read as {new}")
    elif head == "san_graph" and is_csa:
        note = "'gnn.head: san_graph' is read as san_graph_nodes, as CSA's code pools last"
        reading.put("gnn.head", "san_graph_nodes", where, note)


def _translate_edge_encoder(reading: Reading, is_csa: bool) -> None:
    """Spell the edge encoder our way, and let RWSE have pairs where, and only where, it reads them."""
    name, where = reading.leaves["dataset.edge_encoder_name"]
    raw, plus, encoding = str(name).partition("+")
    encoding = "SPD" if encoding == "SPDE" else encoding
    new = ("DummyEdge" if raw == "Dummy" else raw) + plus + encoding
    if is_csa and not plus:  # a layer of the official code fails without pairs
        new += "+None"
    if new != name:
        note = f"'dataset.edge_encoder_name: {name}' is read as {new}"
        reading.put("dataset.edge_encoder_name", new, where, note)
    if encoding == "RWSE" and "posenc_RWSE.enable_edges" not in reading.leaves:
        reading.put("posenc_RWSE.enable_edges", True, where)
    elif encoding != "RWSE" and reading.get("posenc_RWSE.enable_edges"):
        where = reading.leaves["posenc_RWSE.enable_edges"][1]
        note = "'posenc_RWSE.enable_edges' is read as False, as no edge encoder reads it"
        reading.put("posenc_RWSE.enable_edges", False, where, note)
    coalesce, where = reading.leaves.get("dataset.rings_coalesce_edges", (False, ""))
    if coalesce and reading.get("posenc_Rings.enable") and not is_csa:
        raise ConfigError(f"{where}: 'dataset.rings_coalesce_edges' is offered with CSA only; set it to False")


def _unread(reading: Reading, is_csa: bool) -> Iterator[str]:
    """Yield the encodings that are enabled and that no encoder reads; there they cost time, here they are errors."""
    node, edge = (str(reading.get(f"dataset.{part}_encoder_name")).split("+") for part in ("node", "edge"))
    read = {*node, *edge[1:]} | ({"Rings"} if is_csa else set())
    read |= {"RRWP"} if reading.get("model.type") == "GritTransformer" else set()
    for name in ("LapPE", "RRWP", "RWSE", "Rings", "SPD"):
        if name not in read and reading.get(f"posenc_{name}.enable"):
            yield name
