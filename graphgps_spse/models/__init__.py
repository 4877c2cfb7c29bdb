"""Models: one file for each family, built from shared encoders, pair layout and heads."""
