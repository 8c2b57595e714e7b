//! Site files: their contents, the mistakes in them, and the dependencies of their resources.

mod error;
mod fields;
mod graph;
mod model;
mod read;
mod tree;

pub use self::error::SiteError;
pub use self::graph::waves;
pub(crate) use self::model::Named;
pub use self::model::{
    Alarm, Algorithm, Driver, Group, Kind, LoadBalancer, MemberSpec, Metric, Op, Plain, PlainKind, Policy, Resize,
    Resource, Site, Stat, Strategy, Target,
};
pub use self::tree::{Key, Tree, Value};

impl Site {
    /// The site that `tree`, a whole file, describes.
    ///
    /// # Errors
    /// All mistakes that were found, by line.
    pub fn read(tree: &Tree) -> Result<Self, Vec<SiteError>> {
        read::site(tree)
    }
}
