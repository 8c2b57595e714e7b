//! Machines that talk to each other under virtual time, over wires that split, delay, cut and falsify.

mod carried;
mod channel;
mod dialling;
mod handshake;
mod hostile;
mod lanes;
mod world;
