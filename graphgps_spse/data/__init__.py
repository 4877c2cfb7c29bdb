"""Data sets: one file for each family, all of them read into the flat arrays of base.py."""
