"""Options that every family of models reads."""

from graphgps_spse.ops.dispatch import KERNELS
from graphgps_spse.options import Options, option


class KernelOptions(Options, section="train"):
    """How the operations on pairs are computed."""

    kernels: str = option(
        "auto",
        "auto: the kernels of the device where they can work; plain: PyTorch alone; fused: the kernels, or an error",
        choices=KERNELS,
    )
