"""Example envelopes as real programs write them, and helpers to decode one."""

import json
from typing import Any

from ccpipe.formats.sonar import RejectedEnvelope, decode

SAMPLE = """{"meta":{"producer":"sonar","version":"0.19.0-devel"},"data":{"type":"sample",
"attributes":{"time":"2025-04-07T14:17:11+02:00","cluster":"fox.educloud.no","node":"gpu-1.fox",
"system":{"boot":"2025-03-01T06:00:00+00:00","cpus":[726304,744672,700787,707718],
"gpus":[{"uuid":"GPU-bfee27e4","fan":37,"performance_state":3,"memory":5122496,"ce_util":94,
"temperature":-4,"power":191,"power_limit":250,"ce_clock":1785,"memory_clock":6800},
{"index":1,"uuid":"GPU-58e35c9e","failing":1}],
"disks":[{"name":"sda","major":8,"minor":0,"stats":[1,2,3,4,5,6,7,8,9,10,11]}],
"used_memory":77468396,"load1":1.5,"load5":1,"load15":0,"runnable_entities":3,
"existing_entities":411},
"jobs":[{"job":1467074,"user":"bjørg","processes":[
{"resident_memory":281040,"virtual_memory":9201936,"cmd":"pmemd.cuda","pid":895400,"ppid":891882,
"num_threads":3,"cpu_avg":91.7,"cpu_util":1.3,"cpu_time":833,"rolledup":1,
"gpus":[{"index":0,"uuid":"GPU-bfee27e4","gpu_util":80,"gpu_memory":491520}]}]},
{"job":58902,"user":"_user_1234","epoch":161931769,"processes":[
{"cmd":"sh <defunct>","pid":58902,"ppid":1,"in_container":true}]}]}}}""".replace("\n", "")

SYSINFO = """{"meta":{"producer":"sonar","version":"0.19.0-devel"},"data":{"type":"sysinfo",
"attributes":{"time":"2025-03-01T00:00:01+01:00","cluster":"mlx.hpc.uio.no","node":"ml1",
"os_name":"Linux","os_release":"4.18.0-553","architecture":"x86_64","numa_nodes":2,"sockets":2,
"cores_per_socket":16,"threads_per_core":2,"cpu_model":"Intel(R) Xeon(R)","memory":131072000,
"topo_svg":"PHN2Zz4=","distances":[[10,21],[21,10]],"cards":[{"index":0,"uuid":"GPU-35080357",
"address":"00000000:18:00.0","manufacturer":"NVIDIA","model":"RTX 2080 Ti","architecture":"Turing",
"driver":"550","firmware":"12.4","memory":11534336,"power_limit":250,"max_power_limit":280,
"min_power_limit":100,"max_ce_clock":2100,"max_memory_clock":7000}]}}}""".replace("\n", "")

JOBS = """{"meta":{"producer":"sonar","version":"0.19.0-devel"},"data":{"type":"job",
"attributes":{"time":"2025-03-11T09:31:00+01:00","cluster":"fox.educloud.no","slurm_jobs":[
{"job_id":1467074,"job_step":"extern","job_name":"zappa","job_state":"COMPLETED",
"array_job_id":1467073,"array_task_id":1,"user_name":"moonunit","account":"ec666",
"submit_time":"2025-03-08T13:49:06+01:00","time_limit":1209602,"partition":"normal",
"nodes":["c1-[10-20]","bigmem-1"],"priority":1003,"requested_cpus":22,"start_time":
"2025-03-08T18:11:02+01:00","end_time":"2025-03-10T01:35:24+01:00","exit_code":1,
"sacct":{"MinCPU":5,"AllocTRES":"billing=128,cpu=128,mem=472.50G,node=1","AveRSS":64400000}},
{"job_id":1467922,"job_name":"het","job_state":"PENDING","het_job_id":1467921,"het_job_offset":1,
"submit_time":"2025-03-08T13:49:06+01:00","time_limit":1,"priority":1}]}}}""".replace("\n", "")

CLUSTER = """{"meta":{"producer":"sonar","version":"0.19.0-devel"},"data":{"type":"cluster",
"attributes":{"time":"2025-04-01T12:41:18+02:00","cluster":"fox.educloud.no","slurm":true,
"partitions":[{"name":"normal","nodes":["c1-[5-28]"]},{"name":"bigmem","nodes":["bigmem-[1-2]",
"c1-29"]}],"nodes":[{"names":["c1-[12-13,16-18]"],"states":["ALLOCATED","MAINTENANCE"]},
{"names":["gpu-13"],"states":["IDLE"]}]}}}""".replace("\n", "")

ERROR = (
    '{"meta":{"producer":"sonar","version":"0.19.0-devel"},"errors":[{"detail":"No can do",'
    '"time":"2025-03-11T09:31:00+01:00","cluster":"fox.educloud.no","node":"c1-26.fox"}]}'
)

ALL = [SAMPLE, SYSINFO, JOBS, CLUSTER, ERROR]


def one(text: str, **options: Any) -> Any:
    decoded = decode(text.encode(), **options)
    assert decoded.rejected == []
    (envelope,) = decoded
    return envelope


def bad(text: str, **options: Any) -> RejectedEnvelope:
    decoded = decode(text.encode(), **options)
    assert decoded == []
    rejected: list[RejectedEnvelope] = decoded.rejected
    (only,) = rejected
    return only


def changed(text: str, path: str, value: Any) -> str:
    """Set one field of an envelope, or remove it with ``...``."""
    tree = json.loads(text)
    place = tree
    *way, last = (int(key) if key.isdigit() else key for key in path.split("."))
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(tree, ensure_ascii=False)
