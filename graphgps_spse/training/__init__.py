"""Training: the loop, the tasks, optimisers, checkpoints and loggers; built objects come in, records go out."""
