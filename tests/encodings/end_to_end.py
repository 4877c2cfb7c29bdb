"""From a configuration to gradients: a few graphs of glued cycles, their encodings, and a model that reads them."""

from dataclasses import replace

import torch
import yaml

from graphgps_spse import run
from graphgps_spse.config import load_config
from graphgps_spse.encode import encode

SMALL = {
    "dataset": {"format": "cycles", "cycles": {"num_graphs": [5, 1, 1], "max_count": 1, "max_length": 4}},
    "gnn": {"dim_inner": 8},
    "accelerator": "cpu",
    "num_threads": 1,
}


def run_model(tmp_path, keys):
    """Build what `keys` say, encode, and go once forwards and backwards. Return the parts and the batch.

    Edges get the one type that the description of the data speaks of. Fails where the output or a gradient is not
    finite.
    """
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | keys | {"dataset": SMALL["dataset"] | keys["dataset"]}))
    cfg = load_config(path)
    torch.manual_seed(0)
    parts = run.build_parts(cfg)
    splits, records = encode(parts.dataset.load(), parts.encodings, 1, parts.store)
    assert set(records) == {encoding.name for encoding in parts.encodings}
    batch = splits["train"].batch(range(5))
    batch = replace(batch, edge_attr_EF=batch.edge_index_2E.new_zeros(batch.edge_index_2E.shape[1], 1))
    out = parts.model(batch)
    assert out.shape == (5, parts.task.dim_out) and out.isfinite().all()
    out.square().sum().backward()
    for name, parameter in parts.model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    return parts, batch
