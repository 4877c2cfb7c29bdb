"""Where the encodings of a split are kept: in memory, as path counts on disk, or nowhere, computed for each batch.

policy.py chooses. Each place gives the rows of a batch through the same method, `rows`, and the same bits.
"""
