"""Workers that are no processes: slow, dead or late whenever a seed says so.

What goes to and fro is encoded and decoded as it would be, and the jobs are really done. They wait
until somebody lets them be worked on; which is next, and whether its worker dies of it, the seed
decides.
"""

from __future__ import annotations

import random
from typing import Final

import msgspec

from rove.policy.jobs import CompileJob, Job, JobListener, JobResult
from rove.policy.worker import result_of

_encoded: Final = msgspec.msgpack.Encoder().encode
_job: Final = msgspec.msgpack.Decoder(Job).decode
_answer: Final = msgspec.msgpack.Decoder(JobResult).decode


class SimulatedWorkers:
    """Is a `rove.policy.jobs.Workers`."""

    def __init__(self, seed: int = 0, count: int = 2) -> None:
        self.listener: JobListener
        self.count = count
        self.holds_jobs = False
        """Whether jobs wait until `work` is called; else a world does them at the end of a turn.
        Texts are compiled there in any case, unless `holds_texts`."""
        self.holds_texts = False
        self.kill_share = 0.0
        """How often a worker dies of a job."""
        self.late_share = 0.0
        """How often it takes too long."""
        self.job_s = 0.0
        """What a job takes of the clock."""
        self.kills = 0
        self.done = 0
        self._random = random.Random(seed)
        self._jobs: list[bytes] = []
        self._texts: list[CompileJob] = []
        self._clock_s = 0.0

    @property
    def waiting(self) -> int:
        """Jobs that were submitted and not done."""
        return len(self._jobs)

    def submit(self, job: Job, time_ms: int) -> None:
        """Have a job done, when somebody says so."""
        assert time_ms > 0
        assert len(self._jobs) < self.count, "workers are given more than they can do"
        if isinstance(job, CompileJob):
            self._texts.append(job)
        else:
            self._jobs.append(_encoded(job))

    def clock(self) -> float:
        """Seconds that pass only when jobs are done."""
        return self._clock_s

    def work(self, most: int | None = None) -> int:
        """Let some jobs be done, in any order; how many were."""
        done = 0
        while self._jobs and (most is None or done < most):
            job = _job(self._jobs.pop(self._random.randrange(len(self._jobs))))
            done += 1
            self._clock_s += self.job_s
            lot = self._random.random()
            if lot < self.kill_share:
                self.kills += 1
                self.listener.lost(job.number, "error", "the worker died")
            elif lot < self.kill_share + self.late_share:
                self.kills += 1
                self.listener.lost(job.number, "time", "it took too long")
            else:
                answer = result_of(job, self.clock)
                answer.took_s = self.job_s
                self.listener.answered(_answer(_encoded(answer)))
        self.done += done
        return done

    def compile(self) -> int:
        """Compile the texts that wait; how many there were."""
        texts, self._texts = self._texts, []
        for job in texts:
            answer = result_of(job, self.clock)
            self.listener.answered(_answer(_encoded(answer)))
        return len(texts)

    def end_all(self) -> None:
        """The broker has died, and with it all that was asked for."""
        self._jobs.clear()
        self._texts.clear()
