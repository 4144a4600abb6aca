"""What `covers` and `intersects` share, beyond what their own tests show."""

import pytest

from rove.cli.common.relations import show
from rove.lang import Answer, ProofResult, Witness

SAYS = {ProofResult.YES: "yes it is", ProofResult.NO: "no", ProofResult.UNKNOWN: "who knows"}


def test_a_verdict_without_witness_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(Answer(ProofResult.YES), SAYS, as_json=False)
    assert capsys.readouterr().out == "yes: yes it is\n"


def test_a_witness_is_shown_with_its_time_and_readable_letters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Answer(ProofResult.NO, Witness({"a": "é"}, 2.5, {"a": {"x": 1}})), SAYS, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "no: no",
        '  publication  {"a": "é"}',
        "  t            2.5",
        '  me           {"a": {"x": 1}}',
    ]
