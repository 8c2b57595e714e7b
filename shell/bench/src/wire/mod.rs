//! Bytes on the wire: stamped payloads, publications from templates, and a reader that looks only at the parts that are counted.

mod scan;
mod stamp;
mod template;

pub(crate) use scan::{AckKind, Broken, Seen, scan};
pub(crate) use stamp::{STAMP_BYTES, Stamp};
pub(crate) use template::{Outgoing, Template};
