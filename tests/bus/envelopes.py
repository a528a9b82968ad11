"""Envelopes as Sonar sends them, to be carried by any broker."""

from ccpipe.formats.sonar import (
    Envelope,
    ErrorObject,
    JobsAttributes,
    JobsData,
    JobsEnvelope,
    KVPair,
    MetadataObject,
    SampleAttributes,
    SampleData,
    SampleEnvelope,
    SlurmJob,
)

TIME = "2025-02-20T06:05:51+01:00"
META = MetadataObject(producer="sonar", version="0.19.0", attrs=(KVPair("a", "ö"),))
SAMPLE = SampleEnvelope(
    META, SampleData(SampleAttributes(time=TIME, cluster="fox.no", node="c1-6"))
)
JOBS = JobsEnvelope(
    META,
    JobsData(
        JobsAttributes(
            TIME, "fox.no", (SlurmJob(job_id=7, job_name="ångström", job_state="RUNNING"),)
        )
    ),
)
ERROR = Envelope(META, errors=(ErrorObject(time=TIME, detail="no sacct", cluster="fox.no"),))
