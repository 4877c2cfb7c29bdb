"""Models: one folder for each family, and `modules/` with what the families share."""
