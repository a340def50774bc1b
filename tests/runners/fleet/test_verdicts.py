"""Whose fault a failure is, decided from what devices say."""

import pytest
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_runners._fleet.verdicts import FailureReport, Reliability, Verdict, conclusive, judge
from hypothesis import given
from hypothesis import strategies as st

WRONG, ERROR, MEMORY = FailureKind.WRONG_OUTPUT, FailureKind.RUN_ERROR, FailureKind.OUT_OF_MEMORY
LOST, CRASH, HANG = FailureKind.DEVICE_LOST, FailureKind.CRASH, FailureKind.RUN_TIMEOUT


def report(kind, device="a", **more):
    failure = Measurement(config=(1,), failure=kind, message=f"{kind} (on {device})")
    return FailureReport(device=device, failure=failure, **more)


def kind_of(verdict):
    assert isinstance(verdict, Measurement)
    return verdict.failure


@pytest.mark.parametrize("kind", [WRONG, ERROR, MEMORY])
def test_one_device_alone_is_believed_where_there_is_no_other(kind):
    assert kind_of(judge([report(kind)], tries=2, elsewhere=False)) is kind
    assert judge([report(kind)], tries=2, elsewhere=True) is Verdict.AGAIN


@pytest.mark.parametrize("kind", [WRONG, ERROR, MEMORY, HANG])
def test_two_devices_that_agree_settle_it(kind):
    both = [report(kind, "a"), report(kind, "b")]
    assert kind_of(judge(both, tries=1, elsewhere=True)) is kind


def test_three_are_needed_where_one_is_known_to_fail_by_itself():
    poor = Reliability(faults=3, successes=7)
    two = [report(WRONG, "a", reliability=poor), report(WRONG, "b")]
    assert judge(two, tries=1, elsewhere=True) is Verdict.AGAIN
    assert kind_of(judge([*two, report(WRONG, "c")], tries=0, elsewhere=True)) is WRONG


def test_history_counts_as_it_is_when_the_verdict_is_found():
    first = Reliability()
    two = [report(WRONG, "a", reliability=first), report(WRONG, "b")]
    first.faults += 1
    assert judge(two, tries=1, elsewhere=True) is Verdict.AGAIN


def test_a_device_alone_that_is_known_to_fail_is_asked_again():
    once = [report(WRONG, reliability=Reliability(faults=3, successes=7))]
    assert judge(once, tries=1, elsewhere=False) is Verdict.AGAIN
    assert kind_of(judge(once * 2, tries=0, elsewhere=False)) is WRONG


@pytest.mark.parametrize("kind", [WRONG, CRASH])
def test_two_names_of_one_device_are_one_witness(kind):
    two = [report(kind, name, identity="10.0.0.5:9091") for name in "ab"]
    assert judge(two, tries=1, elsewhere=True) is Verdict.AGAIN
    other = report(kind, "c", identity="10.0.0.6:9091")
    assert kind_of(judge([*two, other], tries=1, elsewhere=True)) is kind


def test_a_device_is_like_its_fleet_until_it_has_shown_that_it_is_not():
    fleet = Reliability()
    known, unknown = Reliability(fleet=fleet), Reliability(fleet=fleet)
    before = unknown.fault_rate
    for _ in range(5):
        known.failed()
    assert before < unknown.fault_rate < known.fault_rate
    for _ in range(200):
        unknown.succeeded()
    assert unknown.fault_rate < before
    assert (fleet.faults, fleet.successes) == (5, 200)


HISTORIES = st.builds(Reliability, faults=st.integers(0, 50), successes=st.integers(0, 500))


@given(HISTORIES)
def test_a_fault_makes_a_worse_witness_and_a_success_a_better_one(history):
    faults, successes = history.faults, history.successes
    assert 0.0 < history.fault_rate < 1.0
    assert Reliability(faults=faults + 1, successes=successes).fault_rate > history.fault_rate
    assert Reliability(faults=faults, successes=successes + 1).fault_rate < history.fault_rate


@given(st.lists(HISTORIES, min_size=1, max_size=5), HISTORIES, st.booleans())
def test_another_that_agrees_never_makes_it_less_certain(histories, other, elsewhere):
    agreeing = [report(WRONG, str(n), reliability=history) for n, history in enumerate(histories)]
    more = [*agreeing, report(WRONG, "other", reliability=other)]
    assert conclusive(more, elsewhere=elsewhere) >= conclusive(agreeing, elsewhere=elsewhere)
    assert conclusive(agreeing, elsewhere=False) >= conclusive(agreeing, elsewhere=True)


@pytest.mark.parametrize("kinds", [(LOST, LOST), (CRASH, LOST), (LOST, CRASH), (CRASH, CRASH)])
def test_devices_lost_twice_that_work_again_are_a_crash(kinds):
    first, second = report(kinds[0], "a", back=False), report(kinds[1], "b", back=True)
    verdict = judge([first, second], tries=1, elsewhere=True)
    assert kind_of(verdict) is CRASH
    assert isinstance(verdict, Measurement)
    assert "a and b" in verdict.message


def test_it_is_awaited_whether_lost_devices_come_back():
    both = [report(LOST, "a", back=False), report(LOST, "b", back=None)]
    assert judge(both, tries=1, elsewhere=True) is Verdict.WAIT
    both[1].back = False
    assert judge(both, tries=1, elsewhere=False) is Verdict.AGAIN


def test_devices_that_never_come_back_are_not_the_candidates_fault():
    both = [report(LOST, "a", back=False), report(LOST, "b", back=False)]
    verdict = judge(both, tries=0, elsewhere=False)
    assert kind_of(verdict) is LOST
    assert isinstance(verdict, Measurement)
    assert "a, b" in verdict.message


def test_the_only_device_decides_on_its_second_loss():
    assert judge([report(LOST, back=None)], tries=2, elsewhere=False) is Verdict.AGAIN
    twice = [report(LOST, back=True), report(LOST, back=True)]
    assert kind_of(judge(twice, tries=1, elsewhere=False)) is CRASH


def test_a_disconnection_before_a_hang_is_still_a_hang():
    mixed = [report(LOST, "a", back=True), report(HANG, "b", back=None)]
    assert judge(mixed, tries=1, elsewhere=True) is Verdict.AGAIN
    assert kind_of(judge([*mixed, report(HANG, "c")], tries=0, elsewhere=True)) is HANG


def test_somebody_who_kills_workers_is_not_the_candidate():
    killed = [report(CRASH, "a", outside=True), report(CRASH, "b", outside=True)]
    assert judge(killed, tries=1, elsewhere=True) is Verdict.AGAIN
    assert kind_of(judge(killed, tries=0, elsewhere=True)) is CRASH


def test_a_configuration_that_is_none_is_final():
    assert kind_of(judge([report(FailureKind.INVALID)], tries=2, elsewhere=True)) is (
        FailureKind.INVALID
    )


KINDS = st.sampled_from([WRONG, ERROR, MEMORY, LOST, CRASH, HANG])


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=5),
    back=st.lists(st.booleans(), min_size=5, max_size=5),
    histories=st.lists(HISTORIES, min_size=5, max_size=5),
    elsewhere=st.booleans(),
)
def test_without_tries_left_there_is_an_end(kinds, back, histories, elsewhere):
    reports = [
        report(kind, str(number), back=back[number], reliability=histories[number])
        for number, kind in enumerate(kinds)
    ]
    kind = kind_of(judge(reports, tries=0, elsewhere=elsewhere))
    assert kind in {*kinds, CRASH, LOST}
