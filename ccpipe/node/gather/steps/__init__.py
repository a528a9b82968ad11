"""The steps that Slurm runs on this node, found by their control groups, under the task gather."""

from ccpipe.node.gather.steps.finder import FoundStep, StepFinder, StepKey
from ccpipe.node.gather.steps.gather import RunningStep, StepGather

__all__ = ["FoundStep", "RunningStep", "StepFinder", "StepGather", "StepKey"]
