"""Modules that the families of models share: encoders, heads, message passing."""
