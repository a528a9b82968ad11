"""Tests of ``ccpipe dead``."""
