"""Classes of data sets in PyTorch Geometric: their raw files, and the readers of these files.

Most raw files hold text or plain arrays, and PyTorch Geometric converts them without running code of the files. Raw
files that are pickled are read here (unpickle.py).
"""

import csv
import inspect
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphgps_spse.data import pickled_files
from graphgps_spse.data.given_values import warn_of_weights
from graphgps_spse.data.kept_arrays import Arrays
from graphgps_spse.data.molecules import FEATURES_VERSION, featurise
from graphgps_spse.data.pyg import RawGraph, flatten_graphs
from graphgps_spse.data.splits import SPLITS, find_scaffold
from graphgps_spse.errors import DataError

log = logging.getLogger(__name__)


class Opened(NamedTuple):
    """What a reader needs: the class, its folder and the data set."""

    class_name: str
    root: Path
    """`root` of the class."""
    folder: Path
    """Folder of the raw files."""
    name: str
    """Name of the data set as the class spells it; empty if the class has a single one."""
    level: str
    """Whether targets belong to the "graph" or to the "node"."""
    trusted: bool
    """Whether unpickling may run code."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Further arguments of the class."""


class PyGClass(NamedTuple):
    """A class whose raw files can be read without running code of the files. `{name}` is the name of the data set."""

    folder: str
    """Folder of the raw files below `root`, which is the folder of the class in `dataset.dir`."""
    files: Callable[[str], tuple[str, ...]]
    """Returns the names of the raw files of a data set."""
    url: Callable[[str], str]
    """Returns where the raw files of a data set can be downloaded, for messages."""
    read: Callable[[Opened], dict[str, Iterator[RawGraph]]]
    """Returns the graphs of each split, or all graphs as "all" where another rule divides them."""
    level: str = "graph"
    split: str = ""
    """The split rule for data sets that the catalogue lacks; empty if none is known."""
    options: Mapping[str, Any] = MappingProxyType({})
    """Further arguments of the class."""
    others: str = ""
    """Pattern of further raw files that are read if they exist."""
    takes_name: bool = True
    """Whether `dataset.name` is an argument of the class, unless it is spelt ""; otherwise it selects features."""
    any_name: bool = False
    """Whether the class has more data sets than the catalogue."""
    root: str = ""
    """Folder of the class; empty if it has the name of the class."""
    version: str = ""
    """Version of the conversion, if graphs depend on more than the raw files and PyTorch Geometric."""
    spell: Callable[[str], str] = str
    """Turns `dataset.name` into the spelling of the class."""


def process(opened: Opened, **options: Any) -> Iterator[RawGraph]:
    """Yield the graphs that a class of PyTorch Geometric makes of its raw files. Its own stored files are not read."""
    import torch_geometric.datasets  # imported here, because the import is slow and conversions are rare

    pyg_class = getattr(torch_geometric.datasets, opened.class_name)
    with tempfile.TemporaryDirectory() as folder:
        silent = property(lambda self: False, lambda self, value: None)
        changes = {"processed_dir": folder, "_download": lambda self: None, "log": silent}
        if opened.name:
            options["name"] = opened.name
        for graph in type(opened.class_name, (pyg_class,), changes)(str(opened.root), **opened.options, **options):
            yield as_raw_graph(graph, opened.level)


def as_raw_graph(graph: Any, level: str) -> RawGraph:
    """Return a `torch_geometric.data.Data` as a RawGraph. Nodes without features get the constant 1, as in GraphGPS."""
    if graph.y is None:
        raise DataError("its graphs have no targets y")
    num_nodes = graph.num_nodes
    x = graph.x if graph.x is not None and graph.x.numel() else torch.ones(num_nodes, 1)
    y = torch.as_tensor(graph.y)
    masks = None
    if level == "node" and all(f"{split}_mask" in graph for split in SPLITS):
        by_split = [graph[f"{split}_mask"].bool().reshape(num_nodes, -1) for split in SPLITS]
        most = max(mask.shape[1] for mask in by_split)  # one mask may serve several splits
        masks = torch.stack([mask.expand(-1, most) for mask in by_split], dim=1)
    return RawGraph(
        x=x if x.dim() == 2 else x.reshape(num_nodes, -1),
        edge_index=graph.edge_index,
        edge_attr=_edge_attr_of(graph),
        y=y.reshape(1 if level == "graph" else num_nodes, -1),
        masks=masks,
    )


def _edge_attr_of(graph: Any) -> Tensor | None:
    """Return the features of edges, [e, D]; None without columns. A graph without edges may have columns."""
    values, num_edges = graph.edge_attr, graph.edge_index.shape[1]
    if values is None:
        return None
    if values.numel():
        return values.reshape(num_edges, -1)
    has_columns = values.dim() > 1 and values.shape[1:].numel() > 0
    return values.flatten(1) if has_columns and not num_edges else None


def read_unlisted(opened: Opened) -> Arrays:
    """Return the arrays of a class that `pyg_classes` lacks, as PyTorch Geometric opens it. Its files may run code."""
    import torch_geometric.datasets

    pyg_class, label = getattr(torch_geometric.datasets, opened.class_name), f"PyG-{opened.class_name}"
    accepted = inspect.signature(pyg_class.__init__).parameters
    options: dict[str, Any] = {"name": opened.name} if "name" in accepted else {}
    if "force_reload" in accepted:  # its processed files may be of other raw files
        options["force_reload"] = True
    parts = SPLITS if "split" in accepted and accepted["split"].default == "train" else ("all",)
    if "train" in accepted or ("split" in accepted and parts == ("all",)):
        raise DataError(
            f"{label}: its class chooses graphs by an argument {'train' if 'train' in accepted else 'split'}, in a way "
            "that is not known here. Open it in Python, and save the graphs of each split with "
            "graphgps_spse.save_folder (docs/other_code.md)"
        )
    arrays: Arrays = {}
    for part in parts:
        try:
            graphs = pyg_class(str(opened.root), **options, **({"split": part} if part != "all" else {}))
        except OSError as err:
            raise DataError(f"{label}: its files are not in {opened.root}, and the download failed: {err}") from err
        except (TypeError, AssertionError, KeyError, ValueError, NotImplementedError) as err:
            name = f" with the name '{opened.name}'" if "name" in options else ""
            raise DataError(
                f"{label}: PyTorch Geometric cannot open it{name} ({type(err).__name__}: {err}). If its class needs "
                "other arguments, open it in Python and save the graphs with graphgps_spse.save_folder "
                "(docs/other_code.md)"
            ) from err
        warn_of_weights(label, graphs)
        try:
            flat = flatten_graphs(as_raw_graph(graph, opened.level) for graph in graphs)
        except DataError as err:
            raise DataError(f"{label}: {err}") from err
        arrays |= {f"{part}.{key}": values.numpy() for key, values in flat.items()}
    return arrays


def _read_all(opened: Opened) -> dict[str, Iterator[RawGraph]]:
    return {"all": process(opened)}


def _read_tu(opened: Opened) -> dict[str, Iterator[RawGraph]]:
    """Read one-hot labels of nodes and edges, or attributes where there are no labels."""
    has = {what: (opened.folder / f"{opened.name}_{what}_labels.txt").is_file() for what in ("node", "edge")}
    return {"all": process(opened, use_node_attr=not has["node"], use_edge_attr=not has["edge"])}


def _read_malnet(opened: Opened) -> dict[str, Iterator[RawGraph]]:
    """Read call graphs, which have no features. The name selects the transform that makes some, as in GraphGPS."""
    from torch_geometric.transforms import LocalDegreeProfile

    features = {"pre_transform": LocalDegreeProfile()} if opened.name == "LocalDegreeProfile" else {}
    graphs = process(opened._replace(name=""), **features)
    files = {split: opened.folder / "split_info_tiny" / "type" / f"{split}.txt" for split in SPLITS}
    sizes = {split: len(path.read_text().splitlines()) for split, path in files.items()}
    return {split: islice(graphs, size) for split, size in sizes.items()}  # the class lists split after split


_MOLECULE_NET = {  # name -> file, column of SMILES, first column of targets and their number, as in PyTorch Geometric
    "esol": ("delaney-processed", -1, -2, 1),
    "freesolv": ("SAMPL", 1, 2, 1),
    "lipo": ("Lipophilicity", 2, 1, 1),
    "pcba": ("pcba", -1, 0, 128),
    "muv": ("muv", -1, 0, 17),
    "hiv": ("HIV", 0, -1, 1),
    "bace": ("bace", 0, 2, 1),
    "bbbp": ("BBBP", -1, -2, 1),
    "tox21": ("tox21", -1, 0, 12),
    "toxcast": ("toxcast_data", 0, 1, 617),
    "sider": ("sider", 0, 1, 27),
    "clintox": ("clintox", 0, 1, 2),
}


def _read_molecules(opened: Opened) -> dict[str, Iterator[RawGraph]]:
    return {"all": _molecules(opened)}


def _molecules(opened: Opened) -> Iterator[RawGraph]:
    """Yield the molecules of a CSV, with OGB's features and a number for each scaffold.

    PyTorch Geometric's features of atoms are others than those that the encoders Atom and Bond read, so the SMILES are
    converted here. Rows that are not molecules are skipped, as there, with a warning.
    """
    from rdkit import rdBase

    file, smiles_at, target_at, num_targets = _MOLECULE_NET[opened.name]
    path, scaffolds, skipped = opened.folder / f"{file}.csv", dict[str, int](), list[str]()
    with path.open(encoding="utf-8", newline="") as text, rdBase.BlockLogs():
        table = csv.reader(text)
        next(table, None)
        for cells in filter(None, table):
            try:
                molecule = featurise(cells[smiles_at].strip())
            except DataError as err:
                skipped.append(f"line {table.line_num}: {err}")
                continue
            scaffold = find_scaffold(cells[smiles_at].strip())
            first = target_at % len(cells)
            targets = [float(cell) if cell.strip() else float("nan") for cell in cells[first : first + num_targets]]
            yield RawGraph(
                x=torch.from_numpy(molecule.x),
                edge_index=torch.from_numpy(molecule.edge_index).long(),
                edge_attr=torch.from_numpy(molecule.edge_attr),
                y=torch.tensor([targets]),
                group=torch.tensor([scaffolds.setdefault(scaffold, len(scaffolds))]),
            )
    if skipped:
        log.warning("%s: %d rows are not molecules and are skipped; the first is %s", path, len(skipped), skipped[0])


def _geom_gcn_files(name: str) -> tuple[str, ...]:
    splits = (f"{name or 'film'}_split_0.6_0.2_{number}.npz" for number in range(10))
    return ("out1_node_feature_label.txt", "out1_graph_edges.txt", *splits)


_GEOM_URL = "https://github.com/graphdml-uiuc-jlu/geom-gcn (folders new_data and splits)"
_MOLECULE_URL = "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/ (the same name, .csv or .csv.gz)"


@cache
def pyg_classes() -> dict[str, PyGClass]:
    """Return the name of each class of torch_geometric.datasets that can be read safely, and its raw files."""
    return _classes_of_graph_targets() | _classes_of_node_targets()


def _classes_of_graph_targets() -> dict[str, PyGClass]:
    return {
        "TUDataset": PyGClass(
            folder="{name}/raw",
            files=lambda name: (f"{name}_A.txt", f"{name}_graph_indicator.txt"),
            url="https://www.chrsmrrs.com/graphkerneldatasets/{}.zip".format,
            read=_read_tu,
            split="cv-stratifiedkfold-10",
            others="*.txt",
            any_name=True,
        ),
        "MoleculeNet": PyGClass(
            folder="{name}/raw",
            files=lambda name: (f"{_MOLECULE_NET[name][0]}.csv",),
            url=lambda name: _MOLECULE_URL,
            read=_read_molecules,
            split="scaffold",
            version=f"features {FEATURES_VERSION}",
            spell=str.lower,
        ),
        "LRGBDataset": PyGClass(
            folder="{name}/raw",
            files=pickled_files.lrgb_files,
            url=lambda name: pickled_files.LRGB_URLS[name],
            read=lambda opened: pickled_files.read_lrgb(opened.folder, opened.name, trusted=opened.trusted),
            split="standard",
            root="LRGB",
            spell=str.lower,
        ),
        "AQSOL": PyGClass(
            folder="raw",
            files=lambda name: ("train.pickle", "val.pickle", "test.pickle"),
            url=lambda name: "https://www.dropbox.com/s/lzu9lmukwov12kt/aqsol_graph_raw.zip?dl=1",
            read=lambda opened: pickled_files.read_aqsol(opened.folder, trusted=opened.trusted),
            split="standard",
            spell=lambda name: "",
        ),
        "MalNetTiny": PyGClass(
            folder="raw",
            files=lambda name: tuple(f"split_info_tiny/type/{split}.txt" for split in SPLITS),
            url=lambda name: "http://malnet.cc.gatech.edu (malnet-graphs-tiny.tar.gz and split_info_tiny.zip)",
            read=_read_malnet,
            split="standard",
            others="malnet-graphs-tiny/**/*.edgelist",
            takes_name=False,
        ),
        "QM9": PyGClass(
            folder="raw",
            files=lambda name: ("gdb9.sdf", "gdb9.sdf.csv", "uncharacterized.txt"),
            url=lambda name: "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/molnet_publish/qm9.zip",
            read=_read_all,
            split="random",
            spell=lambda name: "",
        ),
    }


def _classes_of_node_targets() -> dict[str, PyGClass]:
    return {
        "WebKB": PyGClass(
            folder="{name}/raw",
            files=_geom_gcn_files,
            url=lambda name: _GEOM_URL,
            read=_read_all,
            level="node",
            split="standard",
            spell=str.lower,
        ),
        "Actor": PyGClass(
            folder="raw",
            files=_geom_gcn_files,
            url=lambda name: _GEOM_URL,
            read=_read_all,
            level="node",
            split="standard",
            spell=lambda name: "",
        ),
        "WikipediaNetwork": PyGClass(
            folder="{name}/geom_gcn/raw",
            files=_geom_gcn_files,
            url=lambda name: _GEOM_URL,
            read=_read_all,
            options={"geom_gcn_preprocess": True},
            level="node",
            split="standard",
            spell=str.lower,
        ),
        "HeterophilousGraphDataset": PyGClass(
            folder="{name}/raw",
            files=lambda name: (f"{name}.npz",),
            url=lambda name: "https://github.com/yandex-research/heterophilous-graphs (folder data)",
            read=_read_all,
            level="node",
            split="standard",
            spell=lambda name: name.lower().replace("-", "_"),
        ),
        "Planetoid": PyGClass(
            folder="{name}/raw",
            files=pickled_files.planetoid_files,
            url=lambda name: "https://github.com/kimiyoung/planetoid/raw/master/data",
            read=lambda opened: pickled_files.read_planetoid(opened.folder, opened.name, trusted=opened.trusted),
            level="node",
            split="standard",
        ),
    }
