"""Rankings of pipelines, and what of them is significant."""

import math

from chameleon_bench._pages.suite_report import ranking_table, rankings, sentences

METRIC = "measurements_to_95"


def _report(ratios, tests=(), pipelines=("a", "b", "c")):
    return {
        "pipelines": dict.fromkeys(pipelines),
        "ratios": [
            {"metric": METRIC, "first": first, "second": second, "ratio": ratio}
            for (first, second), ratio in ratios.items()
        ],
        "tests": [
            {
                "metric": METRIC,
                "task": task,
                "first": first,
                "second": second,
                "first_median": test,
                "second_median": other,
                "p_holm": p,
            }
            for task, first, second, test, other, p in tests
        ],
    }


def test_the_order_is_that_of_the_ratios():
    result = rankings(_report({("a", "b"): 2.0, ("a", "c"): 0.5, ("b", "c"): 0.25}))[0]
    assert result.order == ["b", "a", "c"]
    assert result.times == {"b": 1.0, "a": 2.0, "c": 4.0}
    assert ranking_table(result).rows[0] == ("b", "1", "1", "-")


def test_only_what_is_significant_is_called_so():
    tests = [
        ("t1", "a", "b", 64.0, 128.0, 0.01),
        ("t2", "a", "b", 64.0, None, 0.04),
        ("t3", "a", "b", 64.0, 128.0, 0.06),
        ("t4", "a", "b", 64.0, 64.0, 0.01),
        ("t5", "a", "b", 64.0, 32.0, None),
    ]
    result = rankings(_report({("a", "b"): 0.5}, tests, pipelines=("a", "b")))
    assert result[0].won == {"a": [("b", "t1"), ("b", "t2")]}
    assert (
        "a comes first; b takes 2 times as much, significantly so on 2 of 5 tasks"
        in (sentences(result)[0])
    )
    assert ranking_table(result[0]).rows[0][-1] == "b (2)"


def test_pipelines_may_be_level():
    assert "all pipelines are level" in sentences(rankings(_report({("a", "b"): 1.0})))[0]


def test_a_pipeline_that_never_got_there_has_no_rank():
    result = rankings(_report({("a", "b"): 0.5, ("a", "c"): None}))[0]
    assert result.left_out == ["c"]
    assert ranking_table(result).rows[-1] == ("c", "-", "∞", "-")
    assert "significant on no task" in sentences([result])[0]


def test_one_pipeline_is_not_ranked_and_no_ratio_says_so():
    assert rankings(_report({}, pipelines=("a",))) == []
    [first, *_] = rankings(_report({}))
    assert "too few pipelines can be compared" in sentences([first])[0]
    apart = rankings(_report({("a", "b"): 0.5, ("b", "c"): 0.5}))[0]
    assert math.isnan(apart.times["c"]), "it was never compared with the first"
