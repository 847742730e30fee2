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
