"""Numerical operations on node pairs and edges, from which the layers of all models are built.

`pair_layout` and `edge_layout` define the order of pairs and edges in memory, and move values between nodes, pairs and
edges. `segments` has the gathers and sums for that.

Each folder is one operation. `contract.py` defines input, output, masks and gradients. `reference.py` is the equation
in plain PyTorch. A file named after a type of device, such as `cpu.py`, is the implementation for that device.
`dispatch.choose` selects one of them.
"""
