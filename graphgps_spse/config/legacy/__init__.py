"""Configuration files of GraphGPS, GRIT and CSA: their keys become keys of this project."""
