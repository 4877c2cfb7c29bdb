"""Storage of the encodings of a split: arrays in memory, path counts on disk, or computation on the fly.

policy.py chooses the storage. All three have the method `rows`, which returns the rows of a batch, with the same bits.
"""
