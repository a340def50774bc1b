"""Whose fault a failure is, decided from what devices say."""

import pytest
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_runners._fleet.verdicts import (
    FailureReport,
    Reliability,
    Verdict,
    is_candidate_fault,
    judge,
)
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
    assert kind_of(judge([report(kind)], tries=2, has_other_device=False)) is kind
    assert judge([report(kind)], tries=2, has_other_device=True) is Verdict.RETRY


@pytest.mark.parametrize("kind", [WRONG, ERROR, MEMORY, HANG])
def test_two_devices_that_agree_settle_it(kind):
    both = [report(kind, "a"), report(kind, "b")]
    assert kind_of(judge(both, tries=1, has_other_device=True)) is kind


def test_three_are_needed_where_one_is_known_to_fail_by_itself():
    poor = Reliability(faults=3, successes=7)
    two = [report(WRONG, "a", reliability=poor), report(WRONG, "b")]
    assert judge(two, tries=1, has_other_device=True) is Verdict.RETRY
    assert kind_of(judge([*two, report(WRONG, "c")], tries=0, has_other_device=True)) is WRONG


def test_history_counts_as_it_is_when_the_verdict_is_found():
    first = Reliability()
    two = [report(WRONG, "a", reliability=first), report(WRONG, "b")]
    first.faults += 1
    assert judge(two, tries=1, has_other_device=True) is Verdict.RETRY


def test_a_device_alone_that_is_known_to_fail_is_asked_again():
    once = [report(WRONG, reliability=Reliability(faults=3, successes=7))]
    assert judge(once, tries=1, has_other_device=False) is Verdict.RETRY
    assert kind_of(judge(once * 2, tries=0, has_other_device=False)) is WRONG


@pytest.mark.parametrize("kind", [WRONG, CRASH])
def test_two_names_of_one_device_are_one_witness(kind):
    two = [report(kind, name, identity="10.0.0.5:9091") for name in "ab"]
    assert judge(two, tries=1, has_other_device=True) is Verdict.RETRY
    other = report(kind, "c", identity="10.0.0.6:9091")
    assert kind_of(judge([*two, other], tries=1, has_other_device=True)) is kind


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
def test_another_that_agrees_never_makes_it_less_certain(histories, other, has_other_device):
    agreeing = [report(WRONG, str(n), reliability=history) for n, history in enumerate(histories)]
    more = [*agreeing, report(WRONG, "other", reliability=other)]
    assert is_candidate_fault(more, has_other_device=has_other_device) >= is_candidate_fault(
        agreeing, has_other_device=has_other_device
    )
    assert is_candidate_fault(agreeing, has_other_device=False) >= is_candidate_fault(
        agreeing, has_other_device=True
    )


@pytest.mark.parametrize("kinds", [(LOST, LOST), (CRASH, LOST), (LOST, CRASH), (CRASH, CRASH)])
def test_devices_lost_twice_that_work_again_are_a_crash(kinds):
    first, second = (
        report(kinds[0], "a", device_recovered=False),
        report(kinds[1], "b", device_recovered=True),
    )
    verdict = judge([first, second], tries=1, has_other_device=True)
    assert kind_of(verdict) is CRASH
    assert isinstance(verdict, Measurement)
    assert "a and b" in verdict.message


def test_it_is_awaited_whether_lost_devices_come_back():
    both = [report(LOST, "a", device_recovered=False), report(LOST, "b", device_recovered=None)]
    assert judge(both, tries=1, has_other_device=True) is Verdict.WAIT
    both[1].device_recovered = False
    assert judge(both, tries=1, has_other_device=False) is Verdict.RETRY


def test_devices_that_never_come_back_are_not_the_candidates_fault():
    both = [report(LOST, "a", device_recovered=False), report(LOST, "b", device_recovered=False)]
    verdict = judge(both, tries=0, has_other_device=False)
    assert kind_of(verdict) is LOST
    assert isinstance(verdict, Measurement)
    assert "a, b" in verdict.message


def test_the_only_device_decides_on_its_second_loss():
    assert (
        judge([report(LOST, device_recovered=None)], tries=2, has_other_device=False)
        is Verdict.RETRY
    )
    twice = [report(LOST, device_recovered=True), report(LOST, device_recovered=True)]
    assert kind_of(judge(twice, tries=1, has_other_device=False)) is CRASH


def test_a_disconnection_before_a_hang_is_still_a_hang():
    mixed = [report(LOST, "a", device_recovered=True), report(HANG, "b", device_recovered=None)]
    assert judge(mixed, tries=1, has_other_device=True) is Verdict.RETRY
    assert kind_of(judge([*mixed, report(HANG, "c")], tries=0, has_other_device=True)) is HANG


def test_somebody_who_kills_workers_is_not_the_candidate():
    killed = [
        report(CRASH, "a", killed_externally=True),
        report(CRASH, "b", killed_externally=True),
    ]
    assert judge(killed, tries=1, has_other_device=True) is Verdict.RETRY
    assert kind_of(judge(killed, tries=0, has_other_device=True)) is CRASH


def test_a_configuration_that_is_none_is_final():
    assert kind_of(judge([report(FailureKind.INVALID)], tries=2, has_other_device=True)) is (
        FailureKind.INVALID
    )


KINDS = st.sampled_from([WRONG, ERROR, MEMORY, LOST, CRASH, HANG])


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=5),
    back=st.lists(st.booleans(), min_size=5, max_size=5),
    histories=st.lists(HISTORIES, min_size=5, max_size=5),
    has_other_device=st.booleans(),
)
def test_without_tries_left_there_is_an_end(kinds, back, histories, has_other_device):
    reports = [
        report(kind, str(number), device_recovered=back[number], reliability=histories[number])
        for number, kind in enumerate(kinds)
    ]
    kind = kind_of(judge(reports, tries=0, has_other_device=has_other_device))
    assert kind in {*kinds, CRASH, LOST}
