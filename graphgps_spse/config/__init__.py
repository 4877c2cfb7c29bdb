"""The configuration: keys with their defaults, YAML files and overrides, and one frozen result, `load_config(path)`."""

from graphgps_spse.config.load import load_config
from graphgps_spse.config.tree import Config, default_tree, option_classes

__all__ = ["Config", "default_tree", "load_config", "option_classes"]
