"""Damage to stored values, done behind a relay's back: a torn write, nonsense, a slip by hand."""


def tear(store, key):
    """Half of a value is lost."""
    change(store, key, lambda value: value[: len(value) // 2])


def garble(store, key):
    """Something else stands in its place."""
    change(store, key, lambda value: b"\xff nonsense")


def lose(store, key):
    store.transact(lambda state: state.delete([key]))


def change(store, key, how):
    store.transact(lambda state: state.set({key: how(*state.get([key]))}))
