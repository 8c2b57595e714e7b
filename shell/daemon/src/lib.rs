//! The Sedge daemon: event loops, listeners, links, configuration, HTTP API.
