"""Arrays of the CPU as tensors of a device."""

import numpy as np
import torch
from torch import Tensor


def to_device(array: np.ndarray, device: torch.device | str) -> Tensor:
    """Return an array as a tensor on a device, without waiting for the work that is queued there.

    A copy to a GPU only does not wait if the array is in page-locked memory, apart from arrays of a few kilobytes.
    """
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
