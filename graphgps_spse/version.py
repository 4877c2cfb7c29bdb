"""The version of the package, read by pyproject.toml and written into every record."""

__version__ = "0.2.0"
