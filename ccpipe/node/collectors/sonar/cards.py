"""The cards of the node, of every vendor, as Sonar reports them.

Numbers of cards are those of their vendor, so that two cards may have the same one.

Source: Sonar JSON format output specification, *SampleGpu*, *SampleProcessGpu*, *SysinfoGpuCard*.
"""

from ccpipe.formats.sonar import SampleGpu, SampleProcessGpu, SysinfoGpuCard
from ccpipe.node.collectors.sonar.amd import AmdCards
from ccpipe.node.collectors.sonar.envelope import Errors
from ccpipe.node.collectors.sonar.nvidia import NvidiaCards


class Cards:
    """The cards of one node."""

    def __init__(self, *, node: str, root: str = "/") -> None:
        self._makes = (NvidiaCards(root=root), AmdCards(node=node, root=root))

    def sample(self, errors: Errors) -> tuple[list[SampleGpu], dict[int, list[SampleProcessGpu]]]:
        gpus: list[SampleGpu] = []
        processes: dict[int, list[SampleProcessGpu]] = {}
        for make in self._makes:
            of_make, uses = make.sample(errors)
            gpus += of_make
            for pid, own in uses.items():
                processes.setdefault(pid, []).extend(own)
        return gpus, processes

    def describe(self, errors: Errors) -> list[SysinfoGpuCard]:
        return [card for make in self._makes for card in make.describe(errors)]
