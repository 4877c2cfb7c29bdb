"""Lower bounds of path counts, by the paper's algorithms.

lower_bounds.py   count_dag: Algorithm 1, the largest count over many acyclic graphs
node_orderings.py Algorithm 2: orderings of the nodes, each of which makes a graph acyclic
root_choice.py    where the orderings begin
along_orderings.py Algorithm 3: counts in an acyclic graph
"""
