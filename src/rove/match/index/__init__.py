"""The exact index: subscriptions as rows in blocks of 64, publications as keys, and the search.

`index` is the door. `subjects`, `columns`, `batch` and `keys` say what a publication looks like to
it, `rows`, `building` and `layout` what a subscription does, `segment` and the kernels find the one
in the other, and `following` finds a million subscribers by their state.
"""
