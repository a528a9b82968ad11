"""Jobs of a simulated cluster obey what real ones do."""

from ccpipe.simulate.jobs import LOAD, SECOND, Scheduler

START = 1_790_000_000 * SECOND
DAY = 86_400 * SECOND
NODES = [f"n{number}" for number in range(200)]


def scheduler(*, seed: int = 1, failures: float = 0.0) -> Scheduler:
    return Scheduler("c", NODES, hwthreads=64, start=START, seed=seed, failures=failures)


def test_a_job_starts_once_stops_once_and_never_shares_a_node() -> None:
    """Over a day with failures: each stop has its start before it, each node one job at a time."""
    made = scheduler(failures=0.5)
    running = {job.id: job for job in made.running()}
    ended: set[int] = set()
    for function, job in made.advance(START + DAY):
        if function == "start_job":
            assert job.id not in running
            assert job.id not in ended
            running[job.id] = job
        else:
            assert running.pop(job.id).nodes == job.nodes
            assert job.start < job.end
            ended.add(job.id)
        taken = [node.hostname for each in running.values() for node in each.nodes]
        assert len(taken) == len(set(taken))
    assert len(ended) > 100
    assert {job.id for job in made.running()} == set(running)


def test_the_cluster_is_busy_most_of_the_time() -> None:
    made = scheduler()
    shares = []
    for hour in range(1, 25):
        for _ in made.advance(START + hour * 3600 * SECOND):
            pass
        shares.append(sum(job is not None for job in made.job_of) / len(NODES))
    assert LOAD / 2 < sum(shares) / len(shares) <= 1


def test_a_node_that_fails_ends_its_job_and_comes_back() -> None:
    """The job's state is ``node_fail``; half an hour later the node works again."""
    made = scheduler(failures=1.0)
    failed = [job for _, job in made.advance(START + DAY) if job.state == "node_fail"]
    assert failed
    assert 0 < sum(made.is_away) < len(NODES) / 4


def test_the_seed_decides() -> None:
    first, same, other = (list(scheduler(seed=n).advance(START + DAY)) for n in (1, 1, 2))
    assert first == same != other
