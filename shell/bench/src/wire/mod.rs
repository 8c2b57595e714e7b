//! What goes over the wire: stamped payloads, publications from templates, and a reader that looks only at what is counted.

mod scan;
mod stamp;
mod template;

pub(crate) use scan::{AckKind, Broken, Seen, scan};
pub(crate) use stamp::{STAMP_BYTES, Stamp};
pub(crate) use template::{Outgoing, Template};
