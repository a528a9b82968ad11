"""The description of a node, as Sonar's daemon reports it: the envelope ``sysinfo``.

The drawings are made by hwloc's ``lstopo``, if it is installed. This envelope has no field for
partial errors: they follow in a separate envelope.

Source: Sonar JSON format output specification, *SysinfoEnvelope* and the types below.
"""

import base64
import shutil
from collections.abc import Iterator

from ccpipe.formats.sonar import Envelope, SysinfoAttributes, SysinfoData, SysinfoEnvelope
from ccpipe.node.collectors.sonar.envelope import META, Errors, local, readable
from ccpipe.node.collectors.sonar.gpus import Gpus
from ccpipe.node.linux.topology import system, topology
from ccpipe.process.child import run

_LSTOPO = ("lstopo-no-graphics", "lstopo")
_TIMEOUT = 20.0  # seconds for one drawing
_MAX_DRAWING = 256 * 1024  # bytes of one drawing: both must fit into one message of NATS


class SonarSysinfo:
    """Describes the node for Sonar's consumers; no drawings of another `root` than ``/``."""

    def __init__(self, *, cluster: str, node: str, lstopo: bool = True, root: str = "/") -> None:
        self._cluster = cluster
        self._node = node
        self._lstopo = lstopo and root == "/"
        self._root = root
        self._gpus = Gpus(node=node, root=root)

    def collect(self, time: int) -> Iterator[Envelope]:
        """Yield the description at the slot `time`, then an envelope of errors if there are any."""
        errors = Errors()
        attributes = None
        with errors.noted():
            attributes = self._describe(time, errors)
        if attributes is not None:
            yield SysinfoEnvelope(meta=META, data=SysinfoData(attributes=attributes))
        if errors.texts:
            yield errors.envelope(time, self._cluster, self._node)

    def _describe(self, time: int, errors: Errors) -> SysinfoAttributes:
        kernel, hardware = system(self._root), topology(self._root)
        return SysinfoAttributes(
            time=local(time),
            cluster=self._cluster,
            node=self._node,
            os_name=readable(kernel.name),
            os_release=readable(kernel.release),
            architecture=readable(kernel.architecture),
            sockets=hardware.sockets,
            cores_per_socket=hardware.cores_per_socket,
            threads_per_core=hardware.threads_per_core,
            cpu_model=readable(hardware.model),
            memory=hardware.memory,
            topo_svg=self._drawn("svg", errors),
            topo_text=self._drawn("console", errors),
            cards=tuple(self._gpus.describe(errors)),
            distances=hardware.distances,
            numa_nodes=len(hardware.distances),
        )

    def _drawn(self, form: str, errors: Errors) -> str:
        program = next(filter(None, map(shutil.which, _LSTOPO)), None) if self._lstopo else None
        if program is None:
            return ""
        drawing = b""
        with errors.noted():
            drawing = run([program, "--of", form, "-"], timeout=_TIMEOUT, output=_MAX_DRAWING)
        return base64.b64encode(drawing).decode()
