"""A split that is encoded, and the arrays that its encoding is made of."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from graphgps_spse.encodings.base import Encoding, EncodingArrays, GraphArrays, num_rows
from graphgps_spse.errors import DataError


class Split(NamedTuple):
    """The graphs of a split, and its name for people."""

    graphs: GraphArrays
    dataset: str
    part: str

    @property
    def name(self) -> str:
        """E.g. ZINC-train."""
        return f"{self.dataset}-{self.part}"

    @property
    def where(self) -> str:
        """E.g. ZINC, train split: how messages begin."""
        return f"{self.dataset}, {self.part} split"

    def num_bytes(self, encoding: Encoding) -> int:
        """Bytes that the arrays of an encoding take in memory."""
        pairs, nodes = num_rows(self.graphs)
        return (pairs * encoding.dim_pair + nodes * encoding.dim_node) * 4


def compute(encoding: Encoding, graphs: GraphArrays, where: str, numbers: Sequence[int]) -> EncodingArrays:
    """Encode graphs that are `numbers` in the split that `where` names.

    Raises DataError, naming the graph by its number in the split, where one cannot be encoded; and as `check_arrays`.
    """
    with located(where, numbers):
        encoded = encoding.compute(graphs)
    check_arrays(encoding, encoded, graphs, where)
    return encoded


def check_arrays(encoding: Encoding, encoded: EncodingArrays, graphs: GraphArrays, where: str) -> None:
    """Raise DataError where an encoding breaks its word: float32 arrays of one row a pair or node."""
    pairs, nodes = num_rows(graphs)
    for what, array, rows, columns in (
        ("pair", encoded.pair, pairs, encoding.dim_pair),
        ("node", encoded.node, nodes, encoding.dim_node),
    ):
        found = ("no array", ()) if array is None else (str(array.dtype), array.shape)
        if found != (("float32", (rows, columns)) if columns else ("no array", ())):
            raise DataError(
                f"encoding {encoding.name}, {where}: {what} must be float32 [{rows}, {columns}] (no array where "
                f"dim_{what} is 0), not {found[0]} {list(found[1])}"
            )


@contextmanager
def located(where: str, numbers: Sequence[int]) -> Iterator[None]:
    """Put `where` before the message of a DataError and replace the number of a graph, with which it begins."""
    try:
        yield
    except DataError as err:
        message = re.sub(r"^graph (\d+)", lambda match: f"graph {numbers[int(match[1])]}", str(err))
        raise DataError(f"{where}, {message}") from err
