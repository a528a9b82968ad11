"""The report of a step."""

from pathlib import Path

import pytest

from ccpipe.cli.step.report import TABLE, describe, table, write_report
from ccpipe.errors import CreateError
from ccpipe.node.gather.jobacct import TaskId, create
from ccpipe.node.gather.profile import Step

STEP = Step(job=17, step="batch", node="c3", node_index=2)


def test_the_table_has_sacct_columns_under_their_names() -> None:
    info = create(TaskId(0, 2))
    info.update("mem", 139096 * 1024)
    row = describe(info, STEP, 0, 1.23456)
    assert (row["JobID"], row["State"], row["MaxRSSNode"]) == ("17.batch", "COMPLETED", "c3")
    text = table(row)
    assert all(name in text for names in TABLE for name in names)
    assert "139096K" in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_report_that_cannot_be_written_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(CreateError, match="nothing/report"):
        write_report(create(), STEP, 1, 1.0, "json", tmp_path / "nothing" / "report")
