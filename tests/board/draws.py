"""What the state machine's rules are given: small worlds, in which things meet."""

from __future__ import annotations

from hypothesis import strategies as st

from dugnad.types import HUMAN, Amount, Budget, Done, Failed, Pace, Released, Waiting

CREW = {"alice": ("coder",), "bob": ("coder", "tester"), "lena": ()}  # Lena leads.
HOSTS = ("north", "south")

places = st.integers(0, 7)  # Which of the tasks, holds or letters there are, counted round.
names = st.sampled_from([*CREW, *CREW, "nobody"])
people = st.sampled_from([HUMAN, HUMAN, *CREW, "nobody"])
readers = st.sampled_from(["alice", "alice", "alice", HUMAN, "bob", "nobody"])
hosts = st.sampled_from(HOSTS)
beating = st.sampled_from([HOSTS, HOSTS[:1], HOSTS[1:], ()])  # The hosts that are heard of.
words = st.sampled_from([None, None, None, "good", "failed", "cancelled", "skipped", "ended"])
counts = st.sampled_from([None, None, None, 1, 2, 3, 4, 0])
caps = st.builds(Budget, tasks=counts, tokens=counts, seconds=st.sampled_from([None, None, None, 0.002]))
amounts = st.builds(Amount, tokens=st.integers(0, 2), milliseconds=st.integers(0, 1))
SLOW = "provider"
paces = st.sampled_from(
    [None, None, None, Pace(key=SLOW), Pace(key=SLOW, requests_per_minute=2), Pace(key=SLOW, tokens_per_minute=2)]
)
drafts = st.fixed_dictionaries(
    {
        "needs": st.lists(st.tuples(st.integers(-2, 9), words), max_size=2),
        "role": st.sampled_from([None, None, None, "coder", "tester"]),
        "assignee": st.sampled_from([None, None, None, None, "alice"]),
        "not_for": st.sampled_from([None, None, None, "alice", "bob"]),
        "priority": st.sampled_from([0, 0, 0, 1, 2]),
        "key": st.sampled_from([None, None, "k1", "k2"]),
        "title": st.sampled_from(["t1", "t2", "t3"]),
        "delay_seconds": st.sampled_from([0.0, 0.0, 0.0, 3.0]),
    }
)
ends = st.sampled_from([Done(), Done(), Done(outcome="good"), Done(outcome="poor"), Failed("no")])
outcomes = st.one_of(
    ends,
    st.builds(Done, outcome=st.sampled_from([None, "good"])),
    st.builds(Done, outcome=st.sampled_from([None, "poor"])),
    st.builds(Failed, st.just("no"), retry=st.booleans()),
    st.just(Failed("not yet", retry=True)),
    st.builds(Released, st.just("busy"), delay_seconds=st.sampled_from([0.0, 0.0, 3.0])),
    st.builds(Waiting, on=st.sampled_from(["human", "plan"]), question=st.just("may I?"), ask=people),
    st.builds(Waiting, on=st.just("tasks"), tasks=st.lists(places, min_size=1, max_size=2).map(tuple)),
    st.builds(Waiting, on=st.just("budget"), amount=amounts),
)
