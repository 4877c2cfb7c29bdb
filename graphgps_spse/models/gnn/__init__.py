"""Message passing alone, with the GNN+ recipe: edge features, norm, dropout, residual, FFN, encodings."""
