"""The exact index: subscriptions as rows in blocks of 64, publications as keys, and the search.

`index` is the entry point. `subjects`, `columns`, `batch` and `keys` are about publications;
`rows`, `construction` and `layout` are about subscriptions. `segment` and the kernels search, and
`followers` finds a million subscribers by their state.
"""
