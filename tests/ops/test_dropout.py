import torch

from graphgps_spse.ops.dropout import draw_dropout_mask


def test_entries_are_zero_at_the_rate_and_otherwise_keep_the_mean():
    torch.manual_seed(0)
    mask = draw_dropout_mask(300, 100, 0.25, torch.zeros(0, dtype=torch.float64))
    assert mask.shape == (300, 100) and mask.dtype == torch.float64
    assert set(mask.unique().tolist()) == {0.0, 1 / 0.75}
    assert abs(float((mask == 0).double().mean()) - 0.25) < 0.01


def test_the_mask_comes_from_the_generator_of_torch():
    masks = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        masks.append(draw_dropout_mask(5, 7, 0.5, torch.zeros(0)))
    assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
