"""GRIT: attention that reads and updates a feature of every node pair."""
