"""Topologies: the neighbours of each client, where it learns from some others instead of from all. Pure functions.

Client i's neighbours are an ascending tuple; whoever has a neighbour is one of that neighbour's.
"""

import random
from collections.abc import Iterable
from itertools import combinations

from repshare_lab.config import Topology

Graph = list[tuple[int, ...]]
Edge = tuple[int, int]

SWAPS = 10  # for each edge: how thoroughly a regular graph is mixed
TRIES = 100  # to find a regular graph in one piece


def make_graph(kind: Topology, clients: int, rng: random.Random, *, degree: int, chance: float) -> Graph:
    """Return each client's neighbours.

    `degree`: neighbours of each (regular, small world). `chance`: of each link (random), or that it is moved (small
    world).
    """
    if kind == "complete":
        return _graph(clients, combinations(range(clients), 2))
    if kind == "star":
        return _graph(clients, ((0, client) for client in range(1, clients)))
    if kind == "random":
        return _graph(clients, (pair for pair in combinations(range(clients), 2) if rng.random() < chance))
    if kind == "regular":
        return _graph(clients, _mixed(_lattice(clients, degree), clients, rng))
    if kind == "small_world":
        return _graph(clients, _rewired(_lattice(clients, degree), clients, chance, rng))
    return _graph(clients, _lattice(clients, 2))


def is_connected(graph: Graph) -> bool:
    """Return whether every client can be reached from every other."""
    reached, edge = {0}, [0]
    while edge:
        new = {other for client in edge for other in graph[client]} - reached
        reached |= new
        edge = sorted(new)
    return len(reached) == len(graph)


def _graph(clients: int, edges: Iterable[Edge]) -> Graph:
    neighbours: list[set[int]] = [set() for _ in range(clients)]
    for a, b in edges:
        if a != b:
            neighbours[a].add(b)
            neighbours[b].add(a)
    return [tuple(sorted(each)) for each in neighbours]


def _lattice(clients: int, degree: int) -> list[Edge]:
    """Return a ring in which each knows the nearest ones; with an odd degree also the one opposite."""
    degree = min(degree, clients - 1)
    offsets = [*range(1, degree // 2 + 1)]
    edges = {_edge(i, (i + offset) % clients) for i in range(clients) for offset in offsets}
    if degree % 2:
        edges |= {_edge(i, (i + clients // 2) % clients) for i in range(clients)}
    return sorted(edges)


def _mixed(edges: list[Edge], clients: int, rng: random.Random) -> list[Edge]:
    """Exchange links in pairs, a–b c–d to a–d c–b, which keeps each client's number of neighbours."""
    for _ in range(TRIES):
        mixed, there = list(edges), set(edges)
        for _ in range(SWAPS * len(edges)):
            i, j = rng.randrange(len(edges)), rng.randrange(len(edges))
            (a, b), (c, d) = mixed[i], mixed[j] if rng.random() < 0.5 else mixed[j][::-1]
            new = _edge(a, d), _edge(c, b)
            if a in (c, d) or b in (c, d) or there & set(new):
                continue
            there -= {mixed[i], mixed[j]}
            there |= set(new)
            mixed[i], mixed[j] = new
        if is_connected(_graph(clients, mixed)):
            return mixed
    return edges


def _rewired(edges: list[Edge], clients: int, chance: float, rng: random.Random) -> list[Edge]:
    """Move some links to lead somewhere else, as Watts and Strogatz do."""
    there = set(edges)
    for a, b in edges:
        free = [other for other in range(clients) if other != a and _edge(a, other) not in there]
        if free and rng.random() < chance:
            there -= {(a, b)}
            there |= {_edge(a, rng.choice(free))}
    return sorted(there)


def _edge(a: int, b: int) -> Edge:
    return (a, b) if a < b else (b, a)
