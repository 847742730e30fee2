import gc

import pytest

from retinue.core.collector import CALM_OBJECTS, calm_collector


@pytest.fixture(autouse=True)
def restore():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_calm_ends_as_it_began():
    gc.set_threshold(700, 10, 10)
    undo = calm_collector()
    seen = gc.get_threshold()
    undo()
    assert (seen, gc.get_threshold()) == ((CALM_OBJECTS, 10, 10), (700, 10, 10))


@pytest.mark.parametrize("chosen", [0, CALM_OBJECTS * 2])
def test_choice_of_the_program_stays(chosen):
    gc.set_threshold(chosen, 5, 5)
    calm_collector()()
    assert gc.get_threshold() == (chosen, 5, 5)


def test_later_choice_is_not_undone():
    gc.set_threshold(700, 10, 10)
    undo = calm_collector()
    gc.set_threshold(900, 10, 10)
    undo()
    assert gc.get_threshold() == (900, 10, 10)
