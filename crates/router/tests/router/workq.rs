//! Clients of Workq, whose queues are on several shards.
