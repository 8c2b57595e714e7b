//! Deterministic cluster simulator for Sedge.
