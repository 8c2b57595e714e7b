//! Names of nodes in listings.

use std::collections::BTreeMap;

use sedge_daemon::http::model::Cluster;

/// Names of nodes by their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<String, String>,
    /// Whether ids stand beside the names.
    ids: bool,
}

impl Names {
    pub(super) fn new(cluster: &Cluster, ids: bool) -> Self {
        let members = cluster.members.iter().map(|member| (&member.node, &member.name));
        let dead = cluster.dead.iter().map(|dead| (&dead.node, &dead.name));
        let named = members.chain(dead).filter_map(|(node, name)| Some((node.clone(), name.clone()?)));
        Self { known: named.collect(), ids }
    }

    /// The name of a node; with its id, too, where that is wanted or two nodes have the same name.
    pub(super) fn of(&self, id: &str) -> String {
        let Some(name) = self.known.get(id) else { return id.to_owned() };
        let shared = self.known.values().filter(|known| *known == name).count() > 1;
        if self.ids || shared { format!("{name} ({id})") } else { name.clone() }
    }

    /// The same; `own`, the node's name for itself, where the cluster has no name for it.
    pub(super) fn of_or(&self, id: &str, own: &str) -> String {
        if self.known.contains_key(id) { self.of(id) } else { own.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ids: bool) -> Names {
        let known = [("1a", "attic"), ("2b", "cellar"), ("3c", "cellar")];
        Names { known: known.map(|(id, name)| (id.to_owned(), name.to_owned())).into(), ids }
    }

    #[test]
    fn a_name_that_two_nodes_have_comes_with_the_id() {
        assert_eq!(names(false).of("1a"), "attic");
        assert_eq!(names(false).of("2b"), "cellar (2b)");
        assert_eq!(names(false).of("4d"), "4d", "it has said no name");
        assert_eq!(names(true).of("1a"), "attic (1a)");
    }
}
