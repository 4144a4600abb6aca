"""The published designs for evolving subscriptions, beside the exact index.

`design` has what they share; `pes`, `lees` and `clees` are the three of them.
"""
