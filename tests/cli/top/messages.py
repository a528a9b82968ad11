"""Messages of two nodes, and events of a job."""

import json
import time

from ccpipe.cli.top.tables import new_state
from ccpipe.formats.lineprotocol import decode
from ccpipe.live.feed import known_metrics
from ccpipe.live.state import LiveState

KNOWN = known_metrics()

NODE = b"""\
load_one,cluster=fritz,hostname=e1,type=node value=3.5 1740027951
num_cpus,cluster=fritz,hostname=e1,type=node value=4 1740027951
cpu_used,cluster=fritz,hostname=e1,type=node value=100 1740027951
cpu_used,cluster=fritz,hostname=e1,type=hwthread,type-id=0 value=99 1740027951
mem_used,cluster=fritz,hostname=e1,type=node value=1000 1740027951
mem_total,cluster=fritz,hostname=e1,type=node,unit=GBytes value=2 1740027951
nv_util,cluster=fritz,hostname=e1,type=accelerator,type-id=0 value=80 1740027951
nv_fb_mem_total,cluster=fritz,hostname=e1,type=accelerator,type-id=0 value=20 1740027951
nv_fb_mem_used,cluster=fritz,hostname=e1,type=accelerator,type-id=0 value=5 1740027951
cpu_idle,cluster=fritz,hostname=e2,type=node value=150 1740027951
num_cpus,cluster=fritz,hostname=e2,type=node value=2 1740027951
"""


def job_event(function: str, **given: object) -> bytes:
    text = json.dumps(json.dumps({"jobId": 7, **given}))
    return f"job,cluster=fritz,function={function},hostname=e1 event={text} 1740027951\n".encode()


def made_of(*payloads: bytes) -> LiveState:
    state = new_state()
    state.nodes.known = KNOWN
    for payload in payloads:
        state.feed(decode(payload, lenient=True), time.time())
    state.tick(time.time())
    return state
