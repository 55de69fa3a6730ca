"""What two lengths of time steps show of the bias, for points at like distances from the boundary."""

import numpy as np

# Points belong together where their distances to the boundary differ by less than this factor.
_RATIO = 4.0


def bias_by_distance(difference: np.ndarray, noise: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """An estimate of the bias at every point, from values with steps `h` and `h / 4`.

    An error of order `h^p` with `p >= 1/2` falls at least by half with `h / 4`, so that what is left is at
    most the difference of the two. Differences at single points are mostly noise, of variance `noise`, so
    that the root mean square is taken over the points at like distances (near the boundary values,
    and their errors, are smaller), with the noise taken off and one standard error of that added.
    Squares, because errors of opposite sign would cancel in a mean.
    """
    group = np.floor(np.log(np.maximum(distance, 1e-300)) / np.log(_RATIO)).astype(np.int64)
    _, group = np.unique(group, return_inverse=True)
    # Points with much noise count less; none counts more than twice as much as a middling one.
    middling = np.array([np.median(noise[group == g]) for g in range(group.max(initial=-1) + 1)])
    weight = 1.0 / np.maximum(noise + middling[group], 1e-300)
    weight /= np.bincount(group, weight)[group]
    square = np.bincount(group, weight * (difference**2 - noise))
    spread = np.sqrt(np.bincount(group, 2.0 * (weight * noise) ** 2))
    return np.sqrt(np.maximum(square, 0.0) + spread)[group]
