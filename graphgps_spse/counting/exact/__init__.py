"""Every simple path, counted exactly.

exact_counts.py    count_exact: easy graphs in one kernel, costly ones block by block
biconnected.py     blocks: parts of a graph that no single vertex separates
within_block.py    paths inside a block, by depth-first search
across_blocks.py   paths through cut vertices, by products of polynomials
block_by_block.py  costly graphs: the method for each block that is predicted to take the least work
search_size.py     the size of a search tree, estimated
last_four_edges.py closed forms for the last four edges of paths in a dense block
vertex_subsets.py  dynamic programming over the vertex subsets of a small dense block
"""
