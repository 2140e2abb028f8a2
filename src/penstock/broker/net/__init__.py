"""Sockets: connections of clients, with fair turns and memory budgets, and channels to other nodes.

`Connection` reads frames and sends answers in request order. `turns`, `receiving`, `answering` and `slices` bound the
resources of one connection: loop time, receive memory, unread answers, and long work. `Peers` sends requests from this
node to other nodes.
"""
