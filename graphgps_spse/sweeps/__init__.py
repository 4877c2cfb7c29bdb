"""Many runs: a sweep file becomes runs, carried out here or on SLURM, and resumed."""
