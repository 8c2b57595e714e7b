//! MQTT semantics of one shard, without I/O.
