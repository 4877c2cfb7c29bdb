"""Targets of name prediction: the first words of a name, which a model predicts, and all its words, for the score.

A row holds NUM_POSITIONS numbers of words, END after the last word, and then the different words of the whole name,
UNKNOWN for each word that the vocabulary lacks, and -1 in the unused columns.
"""

UNKNOWN, END = 5000, 5001
"""Numbers of a word that the vocabulary lacks, and of the end of a name; smaller numbers are words."""
NUM_WORDS = 5002
"""Values of a position."""
NUM_POSITIONS = 5
"""Words that a model predicts."""
MAX_NAME_WORDS = 64
"""Largest number of different words of a name."""
