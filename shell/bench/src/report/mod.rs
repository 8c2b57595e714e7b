//! Figures for programs and for people.

mod csv;
mod figures;
mod table;

pub(crate) use csv::csv;
pub(crate) use figures::Figures;
pub(crate) use table::{Table, table};
