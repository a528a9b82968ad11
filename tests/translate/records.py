"""Records of few names and tags, so that rules often match."""

from hypothesis import strategies as st

from ccpipe.message import Message, Uint

NAMES = ["cpu_load", "cpu_user", "job", "mem[0]"]
TAGS = {
    "cluster": ["fritz", "fox.a", "woody"],
    "hostname": ["e1", "e2", "f01"],
    "type": ["node", "core"],
    "type-id": ["0", "1", "2"],
    "unit": ["KiB", "W"],
}
VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(Uint),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
)
MESSAGES = st.builds(
    Message,
    name=st.sampled_from(NAMES),
    tags=st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in TAGS.items()}),
    value=VALUES,
    time=st.none() | st.integers(0, 10**18),
    field=st.sampled_from(["value", "event", "log", "control", "load"]),
)
