"""The published designs for evolving subscriptions, beside the exact index.

`design` has their common base; `versioned` has PES and CLEES, `lees` has LEES.
"""
