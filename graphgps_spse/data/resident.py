"""Splits whose flat arrays are on the device, so that batches are gathered there and nothing is sent for each step."""

import logging

import torch

from graphgps_spse.data.base import GraphDataset
from graphgps_spse.errors import ConfigError
from graphgps_spse.options import Options, option

log = logging.getLogger(__name__)

SHARE = 0.25
"""The share of a device's free memory that `train.resident: auto` gives to the splits; the rest is for training."""


class ResidentOptions(Options, section="train"):
    """Where the arrays of the splits lie."""

    resident: str = option(
        "auto",
        "arrays of the splits on the GPU, where batches are then gathered; auto: if they take at most a quarter of its "
        "free memory; on: always, or an error; off: batches are built on the CPU and sent",
        choices=("auto", "on", "off"),
    )


def keep_on_device(
    splits: dict[str, GraphDataset], resident: str, device: torch.device, free: int
) -> tuple[dict[str, GraphDataset], bool]:
    """Return the encoded splits, on `device` if `train.resident` asks for it, and whether they are there.

    `free` is the free memory of the device in bytes. Batches are the same either way, to the bit. Raises ConfigError
    if `resident` is on and the splits cannot be kept on the device.
    """
    if resident == "off" or (resident == "auto" and device.type == "cpu"):
        return splits, False
    num_bytes, limit = sum(bytes_of(graphs) for graphs in splits.values()), free if resident == "on" else SHARE * free
    reason = next(filter(None, map(why_not, splits.values())), "")
    if not reason and num_bytes > limit:
        reason = f"they take {num_bytes:,} bytes, and {int(limit):,} are free for them on {device}"
    if not reason:
        log.info("splits on %s: %s bytes", device, f"{num_bytes:,}")
        return {name: graphs.to(device) for name, graphs in splits.items()}, True
    if resident == "on":
        raise ConfigError(f"train.resident: on, but the splits cannot be kept on the device: {reason}. Set auto or off")
    log.info("batches are built on the CPU: %s", reason)
    return splits, False


def bytes_of(graphs: GraphDataset) -> int:
    """Return the size of the flat arrays of a split and of those encodings that are arrays."""
    arrays = (graphs.x_NF, graphs.edge_index_2E, graphs.edge_attr_EF, graphs.y)
    encoded = sum(getattr(encoding, "num_bytes", 0) for encoding in graphs.encodings.values())
    return sum(t.nbytes for t in arrays if t is not None) + encoded


def why_not(graphs: GraphDataset) -> str:
    """Return why a split cannot be kept on a device; empty if it can."""
    kept = [name for name, encoding in graphs.encodings.items() if not hasattr(encoding, "to")]
    return f"{kept[0]} of the {graphs.split} split is read or computed as batches are built" if kept else ""
