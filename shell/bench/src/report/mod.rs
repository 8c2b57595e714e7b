//! Figures for programs and for people.

mod csv;
mod figures;
mod html;
mod svg;
mod table;

pub(crate) use csv::csv;
pub(crate) use figures::Figures;
pub(crate) use html::{html, html_page};
pub(crate) use svg::{Plot, escape};
pub(crate) use table::{Table, number, table};
