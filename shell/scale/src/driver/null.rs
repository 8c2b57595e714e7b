//! The driver that only records: for trying site files.

use sedge_scale::ActionId;
use sedge_scale::site::{MemberSpec, Plain};

use super::{Driver, World};
use crate::state::NodeRecord;

/// A driver that only records the nodes it is asked for.
#[derive(Debug)]
pub(super) struct Null {
    world: World,
}

impl Null {
    pub(super) const fn new(world: World) -> Self {
        Self { world }
    }
}

impl Driver for Null {
    fn provide(&self, _name: &str, _plain: &Plain) -> Result<(), String> {
        Ok(())
    }

    fn create(&self, _action: ActionId, group: &str, node: &str, _spec: &MemberSpec) -> Result<(), String> {
        let record = NodeRecord { group: group.to_owned(), served: true, ..NodeRecord::default() };
        self.world.change(|state| drop(state.nodes.insert(node.to_owned(), record)))
    }

    fn resize(&self, _node: &str, _cpu: f64) -> Result<(), String> {
        Ok(())
    }

    fn remove(&self, node: &str) -> Result<(), String> {
        self.destroy(node)
    }

    fn destroy(&self, node: &str) -> Result<(), String> {
        self.world.change(|state| drop(state.nodes.remove(node)))
    }

    fn release(&self, _name: &str) -> Result<(), String> {
        Ok(())
    }

    fn lost(&self, _node: &str) -> Option<String> {
        None
    }
}
