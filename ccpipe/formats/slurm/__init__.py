"""What Slurm's commands print, text and JSON of 22.05 to 26.05, as records in one set of units.

=====================  ==================================================  =====================
module                 reads                                               into
=====================  ==================================================  =====================
``text.sacct``         ``sacct -P``, ``sstat -P``                          ``SacctRow``
``json``               ``sacct --json``, slurmrestd's ``slurmdb``          ``SacctRow``
``text.squeue``        ``squeue -o``, ``squeue -O``                        ``LiveJob``
``text.scontrol``      ``scontrol show job``                               ``LiveJob``
``cluster``            ``sinfo -o``, ``sinfo -O``                          ``Cluster``
=====================  ==================================================  =====================

What fits nothing is handed back as ``RejectedRow``, and the rest goes on.
"""
