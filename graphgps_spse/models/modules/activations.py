"""Activation functions by name."""

from torch import nn

from graphgps_spse.options import Options, option

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class ActivationOptions(Options, section="gnn"):
    """The activation of layers and heads."""

    act: str = option("relu", "activation of the layers and of the san_graph heads", choices=tuple(ACTIVATIONS))


def build_activation(name: str) -> nn.Module:
    """Return the activation that `gnn.act` names."""
    return ACTIVATIONS[name]()
