"""Unbiased estimates of path counts.

estimates.py      count_sampled: closed forms where they hold, random walks for the rest
random_walks.py   self-avoiding random walks
near_shortest.py  closed forms for paths at most two edges longer than the shortest
"""
