"""The tasks that the script for held-out networks draws."""

from chameleon_core._task import Task
from one_shot import held_out


def tasks(flops, weight=1):
    return [
        Task(name=str(flop), operator="o", arguments={}, target="t", flop=flop, weight=weight)
        for flop in flops
    ]


def test_a_smaller_draw_is_the_beginning_of_a_larger_one():
    every = tasks(range(1, 21))
    largest = held_out.drawn(every, len(every))
    assert sorted(largest, key=lambda task: task.flop) == every
    assert all(held_out.drawn(every, count) == largest[:count] for count in range(len(every)))


def test_tasks_without_operations_are_drawn_last():
    (drawn,) = held_out.drawn(tasks([0.0, 0.0, 5.0, 0.0]), 1)
    assert drawn.flop == 5.0
