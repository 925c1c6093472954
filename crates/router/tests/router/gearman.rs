//! Clients of Gearman, whose queues are on several shards.
