"""Baselines without a neural network: gradient-boosted trees on pooled encodings, fingerprints and descriptors."""
