"""Finite differences on a square, an independent solution for problems with rough data."""

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as linear
from scipy.interpolate import RegularGridInterpolator


class Grid:
    """Central differences for `sum_i a_i(x_i) u_ii + b_i(x_i) u_i - c u` on a square, with given edges."""

    def __init__(self, ends, cells, second, drift, killing, data):
        self.axis = np.linspace(ends[0], ends[1], cells + 1)
        h, inner = self.axis[1] - self.axis[0], self.axis[1:-1]
        self.x, self.y = np.meshgrid(self.axis, self.axis, indexing="ij")
        self.edge = data(self.x, self.y)
        parts = []
        for i in (0, 1):
            a, b = second[i](inner) / h**2, drift[i](inner) / (2 * h)
            assert np.all(a >= np.abs(b))  # else central differences are not monotone
            parts.append((a - b, -2 * a, a + b))
        one = sp.csr_array(np.eye(cells - 1))
        first, other = (
            sp.csr_array(np.diag(low[1:], -1) + np.diag(mid) + np.diag(high[:-1], 1))
            for low, mid, high in parts
        )
        rate = sp.kron(one, killing * one)
        self.matrix = sp.csr_array(sp.kron(first, one) + sp.kron(one, other) - rate)
        known = np.zeros((cells - 1,) * 2)
        known[0] += parts[0][0][0] * self.edge[0, 1:-1]
        known[-1] += parts[0][2][-1] * self.edge[-1, 1:-1]
        known[:, 0] += parts[1][0][0] * self.edge[1:-1, 0]
        known[:, -1] += parts[1][2][-1] * self.edge[1:-1, -1]
        self.known = known.ravel()

    def function(self, inside):
        """The solution between the nodes."""
        values = self.edge.copy()
        values[1:-1, 1:-1] = inside.reshape(values[1:-1, 1:-1].shape)
        return RegularGridInterpolator((self.axis, self.axis), values)

    def solve(self):
        """The solution of the linear equation."""
        return self.function(linear.spsolve(self.matrix.tocsc(), -self.known))

    def stop(self, payoff, start=None):
        """The solution of `max(L u, payoff - u) = 0` by policy iteration, from a function near it."""
        pay = payoff(self.x, self.y)[1:-1, 1:-1].ravel()
        points = np.stack([self.x[1:-1, 1:-1].ravel(), self.y[1:-1, 1:-1].ravel()], axis=1)
        u = linear.spsolve(self.matrix.tocsc(), -self.known) if start is None else start(points)
        stopped = None
        for _ in range(100):
            now = self.matrix @ u + self.known < pay - u
            if stopped is not None and np.array_equal(now, stopped):
                return self.function(u)
            stopped = now
            run = sp.diags_array(1.0 - stopped)
            rows = (run @ self.matrix - sp.diags_array(1.0 * stopped)).tocsc()
            u = linear.spsolve(rows, -(run @ self.known) - stopped * pay)
        raise AssertionError("Policy iteration did not end.")
