"""Baselines: gradient-boosted trees on pooled encodings, fingerprints and descriptors; chemprop."""
