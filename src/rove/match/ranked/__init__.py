"""Ranked subscriptions: `windows` for single publications, `pool` for batches.

`scores` computes what publications are worth to subscriptions, `members` holds who is in which
window, `kernels` moves them, and `pool` combines these. All of them use numbers for publications;
`windows` has the publications of the numbers, and ranks by itself until the kernels are compiled.
"""
