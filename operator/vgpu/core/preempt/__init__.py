"""Decides who makes room for whom: queues, ranks, victims, plans. Pure like the rest of core."""
