from retinue.engine.queue import Queue


def fill(queue, parent, *names):
    for name in names:
        queue.add(parent, name)


def test_runs_start_in_order():
    queue = Queue(2)
    fill(queue, "p", "a", "b", "c")
    assert [queue.take("p"), queue.take("p"), queue.take("p")] == ["a", "b", None]
    queue.release("p", "a")
    assert queue.take("p") == "c"


def test_parents_have_slots_of_their_own():
    queue = Queue(1)
    fill(queue, "p", "a", "b")
    fill(queue, "a", "c")
    assert (queue.take("p"), queue.take("a"), queue.take("p")) == ("a", "c", None)


def test_removed_run_never_starts():
    queue = Queue(1)
    fill(queue, "p", "a", "b")
    assert (queue.remove("p", "a"), queue.remove("p", "a"), queue.take("p")) == (True, False, "b")


def test_larger_limit_lets_more_start():
    queue = Queue(1)
    fill(queue, "p", "a", "b")
    queue.take("p")
    assert (queue.resize(0), queue.limit, queue.take("p")) == (["p"], 1, None)
    assert (queue.resize(2), queue.take("p")) == (["p"], "b")


def test_full_is_for_each_parent():
    queue = Queue(1)
    fill(queue, "p", "a", "b")
    assert (queue.is_full("p"), queue.is_full("z")) == (True, False)


def test_one_free_slot_is_for_one_run():
    queue = Queue(2)
    fill(queue, "p", "a", "b", "c", "d")
    assert [queue.take("p") for _ in range(3)] == ["a", "b", None]
    queue.release("p", "a")
    assert [queue.take("p") for _ in range(2)] == ["c", None]


def test_last_slot_that_is_taken_makes_it_full():
    queue = Queue(0)
    assert (queue.limit, queue.is_full("p")) == (1, False)
    queue.occupy("p", "a")
    assert queue.is_full("p")
    queue.release("p", "a")
    assert not queue.is_full("p")
