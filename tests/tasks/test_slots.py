"""Slots: a small schedule by hand, and any schedule against a plain simulation with lists."""

import random

import numpy as np
import pytest

from tasks.slots import FREE, Slots


def steps(slots, order, lengths, segment):
    """(document, offset) pairs of every step, until no slot has a document."""
    while True:
        slots = slots.seated(order)
        if (slots.document == FREE).all():
            return
        yield list(zip(slots.document.tolist(), slots.offset.tolist(), strict=True))
        slots = slots.moved(lengths, segment)


def once(sequence):
    return lambda place: sequence[place] if place < len(sequence) else None


def test_a_schedule_by_hand():
    lengths = np.array([5, 1, 4, 2, 3])  # in segments of 2: 3, 1, 2, 1, 2
    idle = (FREE, 0)
    assert list(steps(Slots.free(2), once([0, 1, 2, 3, 4]), lengths, 2)) == [
        [(0, 0), (1, 0)],  # document 1 ends
        [(0, 2), (2, 0)],
        [(0, 4), (2, 2)],  # both end: the first slot takes first
        [(3, 0), (4, 0)],
        [idle, (4, 2)],
    ]


def test_waiting_documents_come_first():
    slots = Slots.free(2, taken=1, waiting=(4, 3, 0)).seated(once([0, 1, 2]))
    assert (slots.document.tolist(), slots.waiting, slots.taken) == ([4, 3], (0,), 1)
    slots = slots.moved(np.array([9, 9, 9, 1, 1]), 2).seated(once([0, 1, 2]))
    assert (slots.document.tolist(), slots.waiting, slots.taken) == ([0, 1], (), 2)


def simulated(lengths, sequence, count, segment):
    """The same schedule with one queue of segments for each slot."""
    queue, rows = list(sequence), [[] for _ in range(count)]
    while queue or any(rows):
        for row in rows:
            if not row and queue:
                document = queue.pop(0)
                row.extend((document, offset) for offset in range(0, lengths[document], segment))
        yield [row.pop(0) if row else (FREE, 0) for row in rows]


@pytest.mark.parametrize("case", range(40))
def test_any_schedule_against_queues(case):
    draw = random.Random(case)
    lengths = np.array([draw.randint(1, 12) for _ in range(draw.randint(1, 12))])
    sequence = [draw.randrange(len(lengths)) for _ in range(draw.randint(1, 20))]
    count, segment = draw.randint(1, 6), draw.randint(1, 5)
    found = list(steps(Slots.free(count), once(sequence), lengths, segment))
    assert found == list(simulated(lengths, sequence, count, segment))


def test_the_state_is_plain_and_comes_back():
    lengths = np.array([5, 4])
    slots = Slots.free(3, taken=0, waiting=(1,)).seated(once([0])).moved(lengths, 4)
    assert slots.state() == {"taken": 1, "waiting": [], "slots": [[FREE, 0], [0, 4], [FREE, 0]]}
    assert Slots.of_state(slots.state(), lengths).state() == slots.state()


def test_another_number_of_slots_reads_unfinished_documents_again():
    lengths = np.array([5, 4, 9])
    slots = Slots.free(3, waiting=()).seated(once([2, 1, 0])).moved(lengths, 4)
    assert slots.document.tolist() == [2, FREE, 0]
    for count in (1, 5):
        again = slots.resized(count)
        assert again.state() == {"taken": 3, "waiting": [2, 0], "slots": [[FREE, 0]] * count}


@pytest.mark.parametrize(
    "broken",
    [
        {"taken": -1, "waiting": [], "slots": [[0, 0]]},
        {"taken": 0, "waiting": [2], "slots": [[0, 0]]},
        {"taken": 0, "waiting": [], "slots": [[2, 0]]},
        {"taken": 0, "waiting": [], "slots": [[0, 5]]},  # a document of 5 tokens has no token 5
        {"taken": 0, "waiting": [], "slots": [[FREE, 1]]},
        {"taken": 0, "waiting": [], "slots": [[0]]},
        {"taken": 0, "waiting": [], "slots": [0]},
    ],
)
def test_a_state_that_does_not_fit_is_refused(broken):
    with pytest.raises((ValueError, TypeError)):
        Slots.of_state(broken, np.array([5, 4]))
