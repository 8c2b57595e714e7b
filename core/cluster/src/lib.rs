//! One Sedge node: shards, links, interest, session directory, retained messages, without I/O.
