//! Cooperation algorithms between brokers behind one trait, without I/O.
