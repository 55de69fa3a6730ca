"""What walks have shown: from every start their number, and the moments of their sums."""

import numpy as np


class Ledger:
    """The number of walks from every start, the moments of their sums, and the steps they took.

    `distance` is that of every start to the boundary, `level` multiplies the time steps of its walks, and
    `resolution` is the length near the boundary that counts as zero for them; for branches that begin further
    inside it grows with their distance, to at most `coarsest`. `unfinished` walks could not
    be brought to an end; they are part of no moment.
    """

    def __init__(
        self,
        starts: np.ndarray,
        distance: np.ndarray,
        level: np.ndarray,
        resolution: np.ndarray,
        coarsest: float = 0.0,
    ):
        self.starts, self.distance = starts, distance
        self.level, self.resolution, self.coarsest = level, resolution, coarsest
        self.count = np.zeros(len(starts), np.int64)
        self.unfinished = np.zeros(len(starts), np.int64)
        self.work = 0
        # Sums of powers, about a number near the mean so that nothing cancels.
        self._about, self._powers = np.zeros(len(starts)), np.zeros((4, len(starts)))
        self.least, self.most = np.full(len(starts), np.inf), np.full(len(starts), -np.inf)

    def add(self, which: np.ndarray, values: np.ndarray) -> None:
        """Enter the sums of some walks, each with the number of its start."""
        n = len(self.starts)
        count = np.bincount(which, minlength=n)
        first = np.bincount(which, values, n) / np.maximum(count, 1)
        self._about = np.where(self.count == 0, first, self._about)
        centred = values - self._about[which]
        self._powers += [np.bincount(which, centred**k, n) for k in (1, 2, 3, 4)]
        self.count += count
        np.minimum.at(self.least, which, values)
        np.maximum.at(self.most, which, values)

    @property
    def mean(self) -> np.ndarray:
        """The mean over the walks from every start."""
        return self._about + self._moments[0]

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of one walk, from every start."""
        m, m2 = self._moments[:2]
        unbiased = self.count / np.maximum(self.count - 1, 1)
        return np.sqrt(unbiased * np.maximum(m2 - m * m, 0.0))

    @property
    def error(self) -> np.ndarray:
        """The standard error of the mean, from every start."""
        return self.deviation / np.sqrt(np.maximum(self.count, 1))

    @property
    def kurtosis(self) -> np.ndarray:
        """The fourth central moment divided by the squared variance, 3 where that is zero."""
        m, m2, m3, m4 = self._moments
        variance = m2 - m * m
        fourth = m4 - 4 * m * m3 + 6 * m * m * m2 - 3 * m**4
        safe = np.where(variance > 0, variance, 1.0) ** 2
        return np.where((variance > 0) & (safe > 0), fourth / np.maximum(safe, 1e-300), 3.0)

    @property
    def _moments(self) -> np.ndarray:
        return self._powers / np.maximum(self.count, 1)
