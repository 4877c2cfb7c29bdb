import pytest
import torch

from graphgps_spse.ops.biased_attention import BiasedAttentionInput, biased_attention
from graphgps_spse.ops.graph_attention import NodeBlocks, node_blocks

SIZES = [(1,), (3, 3), (1, 2, 5, 5), (30, 2, 70)]


def one_by_one(given: BiasedAttentionInput) -> torch.Tensor:
    """Graph by graph, head by head, query by query."""
    q, k, v = (part.unflatten(1, (given.num_heads, -1)) for part in given.qkv_NW.chunk(3, dim=1))
    rows, node, pair = [], 0, 0
    for size in given.blocks.sizes:
        bias = given.bias_PH[pair : pair + size * size].unflatten(0, (size, size))
        gate = torch.ones_like(bias)
        if given.gate_PH is not None:
            gate = given.gate_PH[pair : pair + size * size].unflatten(0, (size, size))
        for i in range(size):
            out = []
            for h in range(given.num_heads):
                keys, values = k[node : node + size, h], v[node : node + size, h]
                share = torch.softmax(keys @ q[node + i, h] / keys.shape[1] ** 0.5 + bias[i, :, h], 0)
                out.append((share * gate[i, :, h]) @ values)
            rows.append(torch.cat(out))
        node, pair = node + size, pair + size * size
    return torch.stack(rows)


def given_of(sizes: tuple[int, ...], *, gated: bool, rate: float = 0.0) -> BiasedAttentionInput:
    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()  # noqa: E731
    num_pairs = sum(size**2 for size in sizes)
    gate = random(num_pairs, 2) if gated else None
    return BiasedAttentionInput(NodeBlocks(sizes), 2, random(sum(sizes), 18), random(num_pairs, 2), gate, rate)


def gradients(given: BiasedAttentionInput, y_ND: torch.Tensor) -> list[torch.Tensor]:
    inputs = [t for t in (given.qkv_NW, given.bias_PH, given.gate_PH) if t is not None]
    weights = torch.linspace(1, 2, y_ND.numel(), dtype=y_ND.dtype).reshape(y_ND.shape)
    return list(torch.autograd.grad((y_ND * weights).sum(), inputs))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("free", [0, 4096])
@pytest.mark.parametrize("sizes", SIZES)
def test_output_and_gradients_equal_those_of_one_query_after_the_other(sizes, free, gated, monkeypatch):
    monkeypatch.setattr(node_blocks, "FREE_PAIRS", free)
    given = given_of(sizes, gated=gated)
    ours, theirs = biased_attention(given), one_by_one(given)
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    for mine, other in zip(gradients(given, ours), gradients(given, theirs)):
        assert torch.isfinite(mine).all()
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def test_dropout_scales_what_it_keeps():
    given = given_of((3, 60), gated=True, rate=0.3)
    torch.manual_seed(0)
    mean = torch.stack([biased_attention(given).detach() for _ in range(300)]).mean(0)
    torch.testing.assert_close(mean, biased_attention(given._replace(dropout_rate=0.0)), rtol=0, atol=0.15)
    assert not torch.allclose(biased_attention(given), biased_attention(given))


def test_pairs_lie_where_their_nodes_do(monkeypatch):
    monkeypatch.setattr(node_blocks, "FREE_PAIRS", 0)
    blocks = NodeBlocks((1, 2, 2, 10, 11))
    rows = torch.arange(1.0, 231.0).reshape(230, 1)
    padded = blocks.pad_pairs(rows)
    assert [block.shape for block in padded] == [(1, 1, 1, 1), (2, 1, 2, 2), (2, 1, 11, 11)]
    assert padded[1][1, 0].tolist() == [[6, 7], [8, 9]]
    assert padded[2][0, 0, 1].tolist() == [*range(20, 30), 0] and not padded[2][0, 0, 10].any()
    assert padded[2][1, 0, 10, 10] == 230
