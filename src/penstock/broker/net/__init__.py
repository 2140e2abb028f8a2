"""Sockets: connections of clients, with fair turns and memory budgets, and channels to other nodes.

`Connection` reads frames and sends answers in request order. `turns`, `receiving`, `answering` and `slices` bound what
one connection can take from the others: loop time, receive memory, unread answers, and long work. `Peers` is the other
direction: requests from this node to other nodes.
"""
