"""SAN: attention that treats edges and other pairs of nodes differently."""
