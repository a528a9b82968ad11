"""Random accounting records for tests of sums and selections."""

import random

from hypothesis import strategies as st

from ccpipe.formats.gridengine import Accounting

SECOND = 10**9
START = 1_795_171_319 * SECOND


def _record(dice: random.Random) -> Accounting:
    return Accounting(
        job_number=dice.randint(1, 5),
        task_number=dice.randint(0, 12),
        owner=dice.choice(["anna", "ben", "carla"]),
        group=dice.choice(["physics", "biology"]),
        account="sge",
        qname=dice.choice(["all.q", "low.q"]),
        hostname=dice.choice(["n1.example", "n2.example"]),
        project=dice.choice([None, "astro"]),
        department="dep",
        granted_pe=dice.choice([None, "mpi", "smp"]),
        slots=dice.randint(0, 8),
        arid=dice.choice([0, 17]),
        job_name=dice.choice(["sim", "simple", "test"]),
        submission_time=_time(dice),
        start_time=_time(dice),
        end_time=_time(dice),
        pe_taskid=dice.choice([None, None, "1.n1"]),
        category=dice.choice(["", "-l h_vmem=1G,h_rt=60", "-l gpu=1"]),
        failed=dice.choice([0, 0, 8, 19, 25, 30, 37, 100]),
        exit_status=dice.choice([0, 0, 1, 99, 137, -1]),
        deleted_by=dice.choice([None, None, "anna@h", "execd@n1", "qmaster@m"]),
        usage={
            "rusage": {
                "ru_wallclock": dice.randrange(10**5),
                "ru_utime": _amount(dice),
                "ru_stime": _amount(dice),
                "ru_maxrss": dice.randrange(10**6),
            },
            "eusage": {
                **{name: _amount(dice) for name in ("cpu", "mem", "io", "iow")},
                "maxvmem": dice.choice([0.0, 123456.0]),
                "maxrss": dice.choice([0.0, 5000.0, 2.0**64]),
            },
        },
    )


def _amount(dice: random.Random) -> float:
    return dice.randrange(10**9) / 10**6


def _time(dice: random.Random) -> int | None:
    return dice.choice([None, START + dice.randrange(10**5) * SECOND])


_DICE = random.Random(8)
POOL = [_record(_DICE) for _ in range(500)]
"""To choose from: creating them in each test would take minutes."""

RECORDS = st.sampled_from(POOL)
