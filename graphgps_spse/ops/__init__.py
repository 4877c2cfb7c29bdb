"""Operations on node pairs and edges: the numerical work that models put together.

`pair_layout` and `edge_layout` say where pairs and edges lie and exchange values between nodes, pairs and edges.
`segments` has the gathers and sums behind these.

Each folder is one operation. Its `contract.py` defines input, output, masks and gradients; its `reference.py` is the
equation in plain PyTorch; a file named after a type of device, such as `cpu.py`, is the implementation for that device.
The function in its `__init__.py` calls the implementation that `dispatch.choose` selects. A new implementation needs
such a file with the functions of the reference, and a line in `__init__.py`.
"""
