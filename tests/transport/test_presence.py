"""Neighbours that come, go, and are expected back."""

from sheafed.transport.zenoh.presence import MAX_INSTANCES, Presence


def test_a_neighbour_is_there_while_one_of_its_processes_is() -> None:
    presence = Presence("ab")
    assert presence.appear("a", "1")
    assert not presence.appear("a", "2")
    assert not presence.disappear("a", "1")
    assert presence.names == {"a"}
    assert presence.instances("a") == {"2"}
    assert presence.disappear("a", "2")
    assert not presence.disappear("a", "2")
    assert presence.names == set()
    presence.appear("a", "1")
    assert presence.appearances == {"a": 3}
    for number in range(100):
        presence.appear("b", str(number))
    assert len(presence.instances("b")) == MAX_INSTANCES


def test_a_neighbour_that_is_expected_counts_as_present_for_some_time() -> None:
    presence = Presence("abc")
    presence.appear("a", "1")
    presence.appear("b", "1")
    presence.forget(60.0, refused="b")
    assert presence.names == {"a"}
    assert presence.instances("a") == set()
    presence.forget(0.0, refused="")  # the time that it was given first counts
    assert presence.names == {"a"}
    assert presence.appear("a", "1")
    assert presence.disappear("a", "1")
    assert presence.names == {"a"}, "both ends open their links anew: it may come and go once more"
    presence.expect("a", 0.0)
    assert presence.names == set()
    presence.expect("c", 0.0)
    assert presence.names == set()
    presence.expect("c", 60.0)
    assert presence.names == {"c"}
