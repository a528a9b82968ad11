"""Hypothesis strategy for ``Message``, shared by the line protocol's tests."""

from hypothesis import strategies as st

from ccpipe.message import Message, Uint, Value

MOST_SECONDS = (2**63 - 1) // 10**9

_characters = st.characters(exclude_categories=["Cs", "Cc"])
_special = st.sampled_from(list(",= \\\"'#ü€😀nrt{}-."))
names = (
    st.text(_characters | _special, min_size=1, max_size=12)
    # The encoder rejects texts that cannot be escaped: see test_encoder.
    .filter(lambda text: not text.endswith("\\"))
)
measurements = names.filter(lambda text: not text.startswith("#"))
texts = st.text(st.characters(exclude_categories=["Cs"]) | _special, max_size=30)
values: st.SearchStrategy[Value] = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(Uint),
    st.booleans(),
    texts,
)
times = st.none() | st.integers(-MOST_SECONDS, MOST_SECONDS).map(lambda second: second * 10**9)


@st.composite
def _messages(draw: st.DrawFn) -> Message:
    tags = draw(st.dictionaries(names, names, max_size=4))
    return Message(
        draw(measurements),
        {key: tags[key] for key in sorted(tags)},
        draw(values),
        draw(times),
        draw(st.sampled_from(["value", "event", "log", "control"]) | names),
    )


st.register_type_strategy(Message, _messages())
