"""Graphs of a split, as input of encodings, and checks of the arrays that an encoding returns."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, num_rows
from graphgps_spse.errors import DataError


class Split(NamedTuple):
    """Graphs of a split, and the names of the data set and of the split."""

    graphs: GraphArrays
    dataset: str
    part: str

    @property
    def name(self) -> str:
        """Name for folders and log lines, e.g. ZINC-train."""
        return f"{self.dataset}-{self.part}"

    @property
    def where(self) -> str:
        """Beginning of error messages, e.g. "ZINC, train split"."""
        return f"{self.dataset}, {self.part} split"

    def num_bytes(self, encoding: Encoding) -> int:
        """Return the size of the float32 arrays of an encoding, in bytes."""
        pairs, nodes = num_rows(self.graphs)
        return (pairs * encoding.dim_pair + nodes * encoding.dim_node) * 4


def compute_checked(encoding: Encoding, graphs: GraphArrays, where: str, numbers: Sequence[int]) -> EncodingArrays:
    """Encode graphs and check the result. `numbers` are the numbers of the graphs in the split that `where` names.

    Raises DataError that names the graph by its number in the split if a graph cannot be encoded, and the errors of
    `check_arrays`.
    """
    with locate_errors(where, numbers):
        encoded = encoding.compute(graphs)
    check_arrays(encoding, encoded, graphs, where)
    return encoded


def check_arrays(encoding: Encoding, encoded: EncodingArrays, graphs: GraphArrays, where: str) -> None:
    """Raise DataError unless the arrays are float32, with one row per pair or node and the declared channels."""
    pairs, nodes = num_rows(graphs)
    for what, array, rows, columns in (
        ("pair", encoded.pair, pairs, encoding.dim_pair),
        ("node", encoded.node, nodes, encoding.dim_node),
    ):
        found = ("no array", ()) if array is None else (str(array.dtype), array.shape)
        if found != (("float32", (rows, columns)) if columns else ("no array", ())):
            wanted = f"float32 [{rows}, {columns}]" if columns else f"None, as dim_{what} is 0"
            got = "no array" if array is None else f"{found[0]} {list(found[1])}"
            raise DataError(f"encoding {encoding.name}, {where}: {what} must be {wanted}, not {got}")


@contextmanager
def locate_errors(where: str, numbers: Sequence[int]) -> Iterator[None]:
    """Prefix the message of a DataError with `where`, and turn "graph i" at its beginning into "graph numbers[i]"."""
    try:
        yield
    except DataError as err:
        message = re.sub(r"^graph (\d+)", lambda match: f"graph {numbers[int(match[1])]}", str(err))
        raise DataError(f"{where}, {message}") from err
