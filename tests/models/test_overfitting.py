"""Every model learns 32 random graphs by heart: what it computes can be trained."""

import pytest
import test_csa
import test_gps
import torch
from model_graphs import ENCODINGS, SPEC, as_type, random_graphs

from graphgps_spse.models.build import build_model


@pytest.mark.parametrize("name", ["GPS", "GPS with SPSE", "CSA", "GRIT"])
def test_32_graphs_by_heart(name):
    tree, encodings = {
        "GPS": (test_gps.small_config("GatedGCN", layers=2), ["LapPE"]),
        "GPS with SPSE": (test_gps.small_config("SPSE", layers=2), ["RWSE", "SPSE"]),
        "CSA": (test_csa.small_config("shared", layers=2), ["walks"]),
        "GRIT": (test_gps.small_config("local only", layers=2), ["walks"]),
    }[name]
    if name == "GRIT":
        tree.model.type, tree.dataset.edge_encoder_name = "GritTransformer", "TypeDictEdge"
    tree.gnn.dim_inner = tree.gt.dim_hidden = 32
    tree.gt.n_heads = 4
    torch.manual_seed(0)
    model = build_model(tree, SPEC, [ENCODINGS[encoding] for encoding in encodings], 1).train()
    dataset = random_graphs((5, 6, 7, 8) * 8)
    batch = as_type(dataset.batch(range(32)), torch.float32)
    y, optimizer, losses = batch.y.float(), torch.optim.AdamW(model.parameters(), lr=0.01), []
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=120)
    for _ in range(120):
        optimizer.zero_grad()
        loss = (model(batch) - y).abs().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 * losses[0], losses[::20]
