"""GPS: message passing beside attention among the nodes of each graph."""
