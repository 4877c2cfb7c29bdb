"""Data sets. Each file reads one family of data sets into the flat tensors of base.py."""
