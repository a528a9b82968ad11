"""Node lists: expand, compress, split and count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccpipe.errors import DataError
from ccpipe.formats.nodelist import compress, count, expand, split

SPECIFICATION = [f"c{a}-{b}.fox" for a in (1, 2, 3, 5) for b in (2, 3, 4)]


def test_nodelist_matches_example_of_specification() -> None:
    assert expand("c[1-3,5]-[2-4].fox") == SPECIFICATION
    assert compress(SPECIFICATION) == ["c[1-3,5]-[2-4].fox"]
    assert count("c[1-3,5]-[2-4].fox") == 12


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ["login"]),
        ("a,b", ["a", "b"]),
        ("n[001-003]", ["n001", "n002", "n003"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[098-0101]", ["n098", "n099", "n100", "n101"]),
        ("a[01]", ["a01"]),
        ("a[01,1]", None),
        ("[1-2]x", ["1x", "2x"]),
        ("a[3,1]", ["a3", "a1"]),
        ("a[1-2][3-4]", ["a13", "a14", "a23", "a24"]),
        ("knut-ærlig[1-2]", ["knut-ærlig1", "knut-ærlig2"]),
        ("a1,a1", ["a1", "a1"]),
        ("a[0-1],b_[7].x", ["a0", "a1", "b_7.x"]),
    ],
)
def test_expand_returns_names_in_order_of_specification(text: str, names: list[str] | None) -> None:
    if names is None:
        with pytest.raises(DataError, match="repeated"):
            expand(text)
        return
    assert expand(text) == names
    assert count(text) == len(names)


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "", "must not be empty"),
        ("a,", "character 3", "expected a name"),
        (",a", "character 1", "expected a name"),
        ("a b", "character 2", "expected a name"),
        ("None assigned", "character 5", "expected a name"),
        ("(null)", "character 1", "expected a name"),
        ("a]", "character 2", "expected a name"),
        ("a[]", "character 3", "expected a number"),
        ("a[1", "character 4", "expected ',' or ']'"),
        ("a[x]", "character 3", "expected a number"),
        ("a[1,]", "character 5", "expected a number"),
        ("a[1-]", "character 4", "expected ',' or ']'"),
        ("a[1 ,2]", "character 4", "expected ',' or ']'"),
        ("a[3-1]", "character 3", "3 is greater than 1"),
        ("a[1,1]", "character 6", "number 1 is repeated"),
        ("a[1-5,3]", "character 8", "number 3 is repeated"),
        ("a[٣]", "character 3", "expected a number"),
        ("a[1-9999999999999999999]", "character 3", "more than 18 digits"),
    ],
)
def test_parser_reports_position_of_errors(text: str, place: str, reason: str) -> None:
    for function in (expand, count, split):
        with pytest.raises(DataError) as reported:
            function(text)
        assert place in str(reported.value)
        assert reason in str(reported.value)


def test_split_ignores_commas_in_brackets() -> None:
    assert split("c[1-3,5]-[2-4].fox,n[08,09],login") == ["c[1-3,5]-[2-4].fox", "n[08,09]", "login"]


def test_count_does_not_expand_names() -> None:
    text = "a[1-999999999][1-999999999]"
    assert count(text) == 999999999**2
    with pytest.raises(DataError, match="999999998000000001 names, more than 100000"):
        expand(text)


def test_expand_applies_given_limit() -> None:
    assert len(expand("a[1-3],b[1-3]", limit=6)) == 6
    with pytest.raises(DataError, match="6 names, more than 5"):
        expand("a[1-3],b[1-3]", limit=5)


@pytest.mark.parametrize(
    ("names", "lists"),
    [
        ([], []),
        (["a"], ["a"]),
        (["a1", "a1", "a2"], ["a[1-2]"]),
        (["n001", "n002", "n010"], ["n[001-002,010]"]),
        ([f"n{i:03}" for i in range(1, 129)], ["n[001-128]"]),
        ([f"n{i}" for i in range(1, 129)], ["n[1-128]"]),
        (["n01"], ["n01"]),
        (["n1", "n01"], ["n1", "n01"]),
        (["n9", "n09", "n10"], ["n9", "n[09-10]"]),
        ([f"r{r}c{c}" for r in (1, 2) for c in (1, 2, 3, 4)], ["r[1-2]c[1-4]"]),
        (["r1c1", "r1c2", "r2c1"], ["r1c[1-2]", "r2c1"]),
        (["c10", "c2", "login", "c1"], ["c[1-2,10]", "login"]),
        (["a1b", "a2b", "a1c"], ["a1c", "a[1-2]b"]),
        (["x" + "1" * 30, "x" + "1" * 29 + "2"], ["x" + "1" * 30, "x" + "1" * 29 + "2"]),
    ],
)
def test_compress_merges_numbers_to_ranges(names: list[str], lists: list[str]) -> None:
    assert sorted(compress(names)) == sorted(lists)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a\n"])
def test_compress_rejects_invalid_name(name: str) -> None:
    with pytest.raises(DataError, match="not a valid node name"):
        compress(["ok", name])


NAMES = st.one_of(
    st.from_regex(r"[a-c]{0,1}[0-2]{1,3}(-[0-1]{1,2}){0,2}(\.x)?", fullmatch=True),
    st.text(st.characters(exclude_categories=["Cs"], min_codepoint=128) | st.sampled_from("a0_-."),
            min_size=1, max_size=6),
)  # fmt: skip


@given(st.sets(NAMES, min_size=1, max_size=40))
def test_expand_reverses_compress(names: set[str]) -> None:
    text = ",".join(compress(names))
    assert sorted(expand(text)) == sorted(names)
    assert count(text) == len(names)


@given(st.text("a1[]-,.0 é", max_size=12))
def test_parser_accepts_any_text_or_raises_data_error(text: str) -> None:
    try:
        names = expand(text, limit=1000)
    except DataError:
        return
    assert sorted(set(expand(",".join(compress(names))))) == sorted(set(names))
