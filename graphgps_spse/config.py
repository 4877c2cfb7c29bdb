"""The configuration: every key with its default and meaning, and load_config(), which resolves, checks and freezes.

Key names are GraphGPS's. This is the only file that imports yacs.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

from yacs.config import CfgNode

from graphgps_spse.bounds import check_bounds
from graphgps_spse.compat import read_leaves
from graphgps_spse.config_files import Leaves, find_publisher, locating, merge, read_chain, read_words
from graphgps_spse.errors import ConfigError, show
from graphgps_spse.identity import flatten
from graphgps_spse.key_hints import nearest_key
from graphgps_spse.options import Key, Options, convert
from graphgps_spse.plugins import import_plugin
from graphgps_spse.publication import judge_expectation
from graphgps_spse.registry import ALL

log = logging.getLogger(__name__)

NEED_NOT_BE_READ = frozenset({"dataset.dir", "plugins", "resolved"})
"""Keys that a machine's own scripts set for every run: data sets that are generated have no folder."""


def option_classes(plugins: Sequence[ModuleType] = ()) -> list[type[Options]]:
    """Return the options that the modules of the package's component folders, and those of plugins, declare."""
    modules = {module.__name__: module for registry in ALL for module in registry.modules()}
    modules |= {module.__name__: module for module in plugins}
    return [
        value
        for module in modules.values()
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Options)
        and value.section is not None
        and value.__module__ == module.__name__
    ]


def default_tree(classes: Iterable[type[Options]] | None = None) -> CfgNode:
    """Return a fresh tree of all keys with their defaults, those of `classes` (default: of the package) among them."""
    tree = _root_tree()
    for options in option_classes() if classes is None else classes:
        for key in options.all_keys():
            _declare(tree, key, options)
    return tree


def _declare(tree: CfgNode, key: Key, options: type[Options]) -> None:
    *sections, leaf = key.path.split(".")
    node = tree
    for section in sections:
        node = node.setdefault(section, CfgNode())
        if not isinstance(node, CfgNode):
            raise ConfigError(f"{options.__module__}.{options.__name__}: '{key.path}' would make a section of a key")
    if leaf in node:
        raise ConfigError(f"{options.__module__}.{options.__name__}: the key '{key.path}' is declared already")
    node[leaf] = list(key.default) if key.item else key.default


def _root_tree() -> CfgNode:
    c = CfgNode()
    c.name = ""  # run directory is out_dir/name/seed; empty: the file's name without .yaml
    c.out_dir = "results"
    c.seed = 0  # initial weights, data order, dropout
    c.accelerator = "auto"  # auto: the first CUDA device if there is one; or cpu, cuda, cuda:1
    c.num_threads = 0  # CPU threads of torch and of the counting engine; 0: one for each core this process may use
    c.num_workers = 0  # loader processes; graphs lie in flat arrays, so 0 is fastest for data sets that fit in memory
    c.round = 5  # decimals of metrics on the console; records keep every digit
    c.metric_best = "auto"  # picks the best validation epoch; auto: the metric of the benchmark, reported anyway
    c.tensorboard_each_run = False
    c.resolved = False  # in the config.yaml of a run: all keys are set, so one that nothing reads is no mistake
    c.plugins = []  # modules to import before names are looked up, e.g. [my_lab.my_encoding]

    c.expected = CfgNode()  # what the paper or the official code reports for this file; kept in result.json
    c.expected.mean = 0.0  # as printed: accuracies in %
    c.expected.std = 0.0
    c.expected.seeds = 0  # 0: nothing is reported for it
    c.expected.source = ""
    c.expected.file = ""  # set by the program: the file that expects it, and why it does not apply here
    c.expected.why_not = ""

    c.dataset = CfgNode()
    c.dataset.format = ""  # the loader, e.g. PyG-ZINC, cycles; `python main.py --list` prints all
    c.dataset.name = ""  # the variant, e.g. subset
    c.dataset.dir = "datasets"
    c.dataset.node_encoder_name = "TypeDictNode"
    c.dataset.node_encoder_num_types = 1
    c.dataset.edge_encoder_name = "TypeDictEdge"
    c.dataset.edge_encoder_num_types = 1
    c.dataset.edge_encoder_shared = False  # CSA: one pair of projections of pair features for all layers
    c.dataset.rings_coalesce_edges = False  # CSA with posenc_Rings: ring pairs become edges of types of their own
    c.dataset.cycles = CfgNode()  # the synthetic cycle counting task, section 5.1 of the paper
    c.dataset.cycles.num_graphs = [10000, 1000, 1000]  # train, validation, test
    c.dataset.cycles.min_length = 3
    c.dataset.cycles.max_length = 8
    c.dataset.cycles.max_count = 14  # cycles of each length: uniform on 0..max_count
    c.dataset.cycles.seed = 0  # of the graphs; not the run's seed, so that all seeds share one data set

    c.dataset.generated = CfgNode()  # PATTERN and CLUSTER drawn anew, dataset.format generated
    c.dataset.generated.num_graphs = []  # train, validation, test; empty: as published
    c.dataset.generated.seed = 0  # of the graphs; not the run's seed, so that all seeds share one data set
    c.dataset.images = CfgNode()  # superpixel graphs of MNIST and CIFAR10 made from the images, dataset.format images
    c.dataset.images.dir = ""  # images, or sums over their superpixels; empty: dataset.dir/images/mnist, .../cifar10
    c.dataset.images.num_val = 5000  # the first of the training images; 5000 is the benchmark's
    c.dataset.images.num_graphs = []  # the first so many of train, validation, test; empty: all

    c.dataset.smiles = CfgNode()  # molecules of your own, dataset.format smiles (docs/own_data.md)
    c.dataset.smiles.file = ""  # a CSV, plain or .gz, with a header
    c.dataset.smiles.smiles_column = "smiles"
    c.dataset.smiles.target_columns = []  # e.g. [logP]
    c.dataset.smiles.task = "regression"  # or binary (one column of 0 and 1), multilabel (several)
    c.dataset.smiles.split = "random"  # or scaffold (Bemis-Murcko, largest to train), column
    c.dataset.smiles.split_column = "split"  # of split: column; holds train, val (or valid) and test
    c.dataset.smiles.fractions = [0.8, 0.1, 0.1]  # of train, val and test for random and scaffold
    c.dataset.smiles.seed = 0  # of random; not the run's seed, so that all seeds share one split
    c.dataset.smiles.on_error = "refuse"  # rows that cannot be used: refuse the file, or skip them; both list them
    c.dataset.folder = CfgNode()  # graphs of your own, dataset.format folder (docs/own_data.md)
    c.dataset.folder.dir = ""  # holds meta.json and train, val and test as .npz or .parquet

    c.train = CfgNode()
    c.train.mode = "custom"  # custom: train; eval: evaluate the best epoch of a finished run
    c.train.batch_size = 32
    c.train.eval_period = 1  # epochs between evaluations on validation and test
    c.train.ckpt_period = 1  # epochs between checkpoints
    c.train.ckpt_minutes = 10.0  # and one whenever this long has passed since the last; 0: only between epochs
    c.train.log_interval = 50  # steps between reads of the running loss, for which the program waits for the GPU
    c.train.amp = "off"  # automatic mixed precision on CUDA: off, bf16 or fp16
    c.train.compile = False  # torch.compile; better off on the CPU, where GRIT and CSA would give up their own kernels

    c.wandb = CfgNode()
    c.wandb.mode = "disabled"  # online, offline or disabled
    c.wandb.entity = ""
    c.wandb.project = "graphgps_spse"
    return c


class Config:
    """A resolved configuration, read by attribute and never written: `cfg.gt.dim_hidden`.

    It notes which keys are read, so that a key which is set but changes nothing is an error and not a surprise.
    """

    def __init__(
        self,
        tree: CfgNode,
        set_keys: dict[str, str],
        prefix: str = "",
        read: set[str] | None = None,
        excused: frozenset[str] = frozenset(),
        places: dict[str, str] | None = None,
    ) -> None:
        """`set_keys` says where each key was set that something must read, but for those that are `excused`.

        `places` says it of every key that was set.
        """
        read, places = set() if read is None else read, {} if places is None else places
        self.__dict__.update(
            _tree=tree, _set_keys=set_keys, _prefix=prefix, _read=read, _excused=excused, _places=places
        )

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_") or key not in self._tree:
            raise AttributeError(f"the configuration has no key '{self._prefix}{key}'")
        value, path = self._tree[key], self._prefix + key
        if isinstance(value, CfgNode):
            return Config(value, self._set_keys, path + ".", self._read, self._excused, self._places)
        self._read.add(path)
        return tuple(value) if isinstance(value, list) else value

    def __setattr__(self, key: str, value: object) -> None:
        raise TypeError(f"the configuration is frozen; pass {self._prefix}{key}={value} on the command line instead")

    def check_all_read(self) -> None:
        """Raise ConfigError for a key that the file (not its base) or an override set and that nothing has read.

        In a file of GraphGPS, GRIT or CSA their own keys are only listed.
        """
        unread = sorted(path for path in self._set_keys if path not in self._read)
        excused, unread = [p for p in unread if p in self._excused], [p for p in unread if p not in self._excused]
        if excused:
            log.warning("set, but nothing in this run reads it: %s", ", ".join(excused))
        if unread:
            listing = "\n  ".join(f"{self._set_keys[path]}: '{path}'" for path in unread)
            raise ConfigError(f"set, but nothing in this run reads it; remove it or enable what reads it:\n  {listing}")

    def to_dict(self) -> dict[str, Any]:
        """Return the whole tree as plain nested dicts."""
        return _plain(self._tree)

    def with_values(self, **values: Any) -> "Config":
        """Return a copy with other values of top-level keys, e.g. `with_values(seed=4)`."""
        tree = self._tree.clone()
        tree.defrost()
        tree.update(values)
        tree.freeze()
        return Config(tree, self._set_keys, excused=self._excused, places=self._places)

    def locating(self) -> AbstractContextManager[None]:
        """Put file and line before a ConfigError of the body that begins with a key which was set."""
        return locating(self._places)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, the files of its `base:` and the overrides on top of the defaults, checked key by key.

    The file may be one of GraphGPS, GRIT or CSA (compat.py); what is then read in another way is logged. `overrides`
    are `key=value` words or `key value` pairs. Raises ConfigError naming the file, the line and the key.
    """
    path = Path(path)
    chain, words = read_chain(path), read_words(overrides)
    base, own = merge(chain, words)
    classes = option_classes(_import_plugins({**base, **own, **words}))
    reading = read_leaves(base, own, words)
    if reading.notes():
        notes = "\n  ".join(reading.notes()).replace(f"{path}:", "line ")
        log.warning("%s, keys of GraphGPS, GRIT and CSA:\n  %s", path, notes)
    tree = _build_tree(classes, reading.leaves)
    if not tree.name:
        tree.name = path.stem
    places = {key: where for key, (_, where) in reading.leaves.items()}
    with locating(places):
        _check_values(tree)
    publisher = find_publisher(chain)
    if publisher and not any(key.startswith("expected.") for key in words):
        published = _build_tree(classes, read_leaves(*merge(publisher, {}), {}).leaves)
        tree.expected.update(judge_expectation(_plain(tree), _plain(published), publisher[0][0]))
    tree.freeze()
    # Keys of the file may go unread in a section that an override touches, say by posenc_RRWP.enable=False.
    touched = {key.rpartition(".")[0] for key in reading.words}
    checked = {key for key in reading.own if key.rpartition(".")[0] not in touched} | reading.words
    if tree.resolved:
        checked = set(reading.words)
    set_keys = {key: reading.leaves[key][1] for key in checked - NEED_NOT_BE_READ}
    return Config(tree, set_keys, excused=frozenset(reading.excused), places=places)


def _build_tree(classes: Sequence[type[Options]], leaves: Leaves) -> CfgNode:
    tree, declared = default_tree(classes), {key.path: key for options in classes for key in options.all_keys()}
    for path, (value, where) in leaves.items():
        _set(tree, path, value, where, declared.get(path))
    return tree


def _import_plugins(leaves: Leaves) -> list[ModuleType]:
    """Import the plugins: their components register themselves, and their options join the tree."""
    (names, where), (out_dir, _) = leaves.get("plugins", ([], "")), leaves.get("out_dir", ("results", ""))
    with locating({"plugins": where}):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"plugins: {show(names)} must be a list of module names, e.g. [my_lab.my_encoding]")
        return [import_plugin(name, results=["results", str(out_dir)]) for name in names]


def _check_values(tree: CfgNode) -> None:
    values = flatten(_plain(tree))
    check_bounds(values)
    for key, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}: {value} is not a finite number")
    for key, value in (("seed", tree.seed), ("round", tree.round), ("train.ckpt_minutes", tree.train.ckpt_minutes)):
        if value < 0:
            raise ConfigError(f"{key}: {value} is below 0")
    if tree.train.mode not in ("custom", "eval"):
        raise ConfigError(
            f"train.mode: '{tree.train.mode}' is neither custom (train) nor eval (evaluate a finished run)"
        )
    bad = [c for c in tree.name if not (c.isalnum() or c in "._+-")]
    if bad or tree.name.startswith("."):
        raise ConfigError(f"name: '{tree.name}' becomes a folder, so it may hold only letters, digits and ._+-")


def _set(tree: CfgNode, key: str, value: Any, where: str, declared: Key | None) -> None:
    """Set one leaf after checking that it exists and that the value has its type and keeps its bounds."""
    *sections, leaf = key.split(".")
    node = tree
    for part in [*sections, leaf]:
        if not isinstance(node, CfgNode) or part not in node:
            raise ConfigError(f"{where}: unknown key '{key}'.{nearest_key(key, list(flatten(_plain(tree))))}")
        node, parent = node[part], node
    if isinstance(node, CfgNode):
        raise ConfigError(f"{where}: '{key}' is a section, not a value; its keys: {', '.join(sorted(node))}")
    if declared is None:
        parent[leaf] = _coerce(value, node, f"{where}: '{key}'")
        return
    try:
        checked = declared.check(value)
    except ConfigError as err:
        raise ConfigError(f"{where}: {err}") from err
    parent[leaf] = list(checked) if declared.item else checked


def _coerce(value: Any, default: Any, where: str) -> Any:
    """Return `value` in the type of `default`, or raise: 1 becomes 1.0, the string 1e-5 (PyYAML's reading) a number."""
    kind = type(default)
    if kind is list and isinstance(value, list):
        return [_coerce(item, default[0], where) for item in value] if default else list(value)
    return convert(value, kind, f"{where} must be of type {kind.__name__}", default)


def _plain(tree: CfgNode) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return _plain(value) if isinstance(value, CfgNode) else list(value) if isinstance(value, list) else value

    return {key: plain(value) for key, value in tree.items()}
