"""The judge of log-likelihoods can say no. (The judgement itself needs lm-evaluation-harness.)"""

import json
from pathlib import Path

import pytest
from judges.lm_eval_parity import TASKS, TOLERANCE, compare, report, scores

ONE = {"q a": (-1.0, True), "q b": (-2.0, False)}


def test_the_largest_difference_is_found() -> None:
    found = compare(ONE, {"q a": (-1.0001, True), "q b": (-2.0005, False)})
    assert found.largest == pytest.approx(5e-4)
    assert (found.where, found.num_answers, found.is_close) == ("q b", 2, True)


def test_what_is_apart_is_not_close(capsys: pytest.CaptureFixture[str]) -> None:
    apart = compare(ONE, {"q a": (-1.0, True), "q b": (-2.0 - 2 * TOLERANCE, False)})
    disagreeing = compare(ONE, {"q a": (-1.0, False), "q b": (-2.0, False)})
    assert not apart.is_close
    assert disagreeing.disagreements == ("q a",)
    assert not disagreeing.is_close
    assert not compare({}, {}).is_close
    assert report({"x": compare(ONE, ONE), "y": apart}) == 1
    assert "NOT within 0.001" in capsys.readouterr().out
    assert report({"x": compare(ONE, ONE)}) == 0
    assert report({}) == 1
    with pytest.raises(ValueError, match="same answers"):
        compare(ONE, {"q a": (-1.0, True)})


def test_scores_are_read_from_the_harness() -> None:
    sample = {
        "doc": {"question": "q", "choices": ["a", "b"]},
        "filtered_resps": [(-1.0, True), (-2.0, False)],
    }
    assert scores({"samples": {"flm_questions": [sample]}}) == ONE


def test_the_questions_have_one_right_answer_each() -> None:
    lines = Path(TASKS / "questions.jsonl").read_text("utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    assert len(questions) == 20
    for item in questions:
        assert 0 <= item["answer"] < len(item["choices"]) == len(set(item["choices"])) == 4
