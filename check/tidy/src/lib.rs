//! Tests of the tree itself; see `tests/`.
