"""A process asks for AMX as Linux wants it, and says why it does not get it."""

from __future__ import annotations

import errno

import pytest
from chameleon_system import permissions
from chameleon_system.permissions import AMX, refusal


@pytest.fixture
def calls(monkeypatch):
    """Calls of the system, on x86-64; each succeeds unless ``answers`` has a number for it."""
    made, answers = [], []

    def system_call(*words):
        made.append(words)
        return answers.pop() if answers else 0

    monkeypatch.setattr(permissions, "system_call", system_call)
    monkeypatch.setattr(permissions.sys, "platform", "linux")
    monkeypatch.setattr(permissions.platform, "machine", lambda: "x86_64")
    return made, answers


def test_tiles_are_asked_for(calls):
    made, _ = calls
    assert refusal(AMX) == ""
    assert refusal(AMX) == ""
    assert made == [(158, 0x1023, 18)] * 2


def test_a_refusal_is_said(calls):
    calls[1].append(errno.EPERM)
    assert refusal(AMX) == "Operation not permitted"


def test_no_other_system_is_asked(calls, monkeypatch):
    monkeypatch.setattr(permissions.platform, "machine", lambda: "aarch64")
    assert refusal(AMX) == "only Linux on x86-64 grants AMX"
    assert refusal("sme") == "no system knows the permission 'sme'"
    assert not calls[0]


def test_the_number_of_an_error_is_that_of_the_system():
    unknown_call = 1 << 20
    assert permissions.system_call(unknown_call) == errno.ENOSYS
