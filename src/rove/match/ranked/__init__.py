"""Ranked subscriptions: `windows` for single publications, `pool` for batches.

`scores` computes what publications are worth to subscriptions, `members` holds who is in which
window, `kernels` moves them, and `pool` brings these together. Publications are numbers in all of
them; `windows` knows what the numbers stand for, and serves until the kernels are compiled.
"""
