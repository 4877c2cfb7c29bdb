"""CSA: the layers of GPS with chromatic self-attention."""
