"""``ccpipe hdf5``: profiles of Slurm jobs, with the functions of sh5util and more."""
