//! `sedge sub`.

mod args;
mod clock;
mod format;
mod listen;
mod record;

pub(crate) use args::SubArgs;
pub(crate) use listen::run;
