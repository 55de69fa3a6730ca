"""How random walkers move: on spheres, on moving spheres, in steps of time; and the pool that moves them."""
