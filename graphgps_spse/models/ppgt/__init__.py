"""PPGT: a plain transformer whose attention reads pair encodings as a bias and a gate, and never updates them."""
