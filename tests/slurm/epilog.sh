#!/bin/sh
# The epilog of tests/slurm/test_real_requeue.py: it lasts for several polls of the bridge.
sleep 8
