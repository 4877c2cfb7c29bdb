import pytest
import torch

from graphgps_spse.ops.segments import gather_rows, max_rows, sum_rows, widened

X_RD = torch.tensor([[1.0, -1.0], [2.0, -2.0], [3.0, -3.0], [4.0, -4.0]])
COUNT_N = torch.tensor([1, 0, 3])


def test_sums_and_maxima_by_hand():
    assert sum_rows(X_RD, COUNT_N).tolist() == [[1, -1], [0, 0], [9, -9]]
    assert max_rows(X_RD, torch.tensor([1, 3])).tolist() == [[1, -1], [4, -2]]


def test_rows_are_gathered_and_their_gradients_added_up():
    x_ND = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    index_R = torch.tensor([2, 0, 2, 2])
    order_R = torch.argsort(index_R, stable=True)
    out = gather_rows(x_ND, index_R, order_R, COUNT_N)
    assert torch.equal(out, x_ND[index_R])
    weight = torch.randn(4, 2, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((rows * weight).sum(), x_ND)[0] for rows in (out, x_ND[index_R]))
    torch.testing.assert_close(ours, theirs)


def test_sorted_rows_need_no_order():
    x_ND = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    index_R = torch.tensor([0, 2, 2, 2])
    assert torch.autograd.gradcheck(lambda x: gather_rows(x, index_R, None, COUNT_N), [x_ND])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_types_are_widened_for_sums(dtype):
    assert widened(X_RD.to(dtype)).dtype == sum_rows(X_RD.to(dtype), COUNT_N).dtype == torch.float32
    assert widened(X_RD.double()).dtype == torch.float64


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [1, 7, 64, 300])
def test_sums_have_the_bits_of_segment_reduce(columns, dtype):
    """On a CPU they come from embedding_bag: runs of 0 to 500 rows, the last ones empty."""
    generator = torch.Generator().manual_seed(columns)
    count_N = torch.tensor([0, 1, 2, 500, 0, 33, 7, 0, 0])
    x_RD = torch.randn(543, columns, generator=generator, dtype=dtype).exp().requires_grad_()
    ours, theirs = sum_rows(x_RD, count_N), torch.segment_reduce(x_RD, "sum", lengths=count_N, unsafe=True)
    assert torch.equal(ours, theirs)
    weight = torch.randn(9, columns, generator=generator, dtype=dtype)
    assert torch.equal(*(torch.autograd.grad((y * weight).sum(), x_RD)[0] for y in (ours, theirs)))
    order_R = torch.randperm(543, generator=generator)
    rows = gather_rows(
        weight.requires_grad_(), torch.arange(9).repeat_interleave(count_N)[order_R.argsort()], order_R, count_N
    )
    (grad,) = torch.autograd.grad((rows * x_RD.detach()).sum(), weight)
    assert torch.equal(grad, torch.segment_reduce(x_RD.detach()[order_R], "sum", lengths=count_N, unsafe=True))


def test_no_rows_add_up_to_zero():
    assert sum_rows(torch.empty(0, 3), torch.tensor([0, 0])).tolist() == [[0, 0, 0]] * 2
