"""GPS: message passing and attention among the nodes of each graph."""
