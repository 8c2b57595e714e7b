//! Status that nodes of Sedge report over HTTP.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

use crate::metrics::Token;
use crate::num;

/// Most time for an answer: a frozen node gives none.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Far more than any answer is long.
const MOST_BYTES: u64 = 16 << 20;

/// The HTTP API of one node.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    base: String,
    agent: Agent,
    token: Option<Token>,
}

/// `/api/v1/status`, as far as it is needed here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) node: String,
    pub(crate) version: String,
    pub(crate) overlay: String,
    pub(crate) ready: bool,
}

/// `/api/v1/cluster`, as far as it is needed here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct View {
    members: Vec<Member>,
}

#[derive(Clone, Debug, Deserialize)]
struct Member {
    node: String,
    #[serde(default)]
    name: String,
    this: bool,
    link: Option<Link>,
}

#[derive(Clone, Debug, Deserialize)]
struct Link {
    synced: bool,
    #[serde(default)]
    publications_sent: u64,
}

impl View {
    /// Whether the node knows exactly `wanted`, itself included, and exchanges publications with each over a link whose both ends
    /// know each other's tables.
    pub(crate) fn is_exactly(&self, wanted: &BTreeSet<String>) -> bool {
        let known: BTreeSet<&String> = self.members.iter().map(|member| &member.node).collect();
        let linked = |member: &Member| member.this || member.link.as_ref().is_some_and(|link| link.synced);
        known.into_iter().eq(wanted) && self.members.iter().all(linked)
    }

    /// Whether the node knows `count` members, itself included, and has a link to each.
    pub(crate) fn is_of(&self, count: usize) -> bool {
        self.members.len() == count && self.is_exactly(&self.nodes())
    }

    /// Publications that the node has sent to each other, by name.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (&str, u64)> {
        let sent = |member: &Member| member.link.as_ref().map(|link| link.publications_sent);
        self.members.iter().filter_map(move |member| Some((member.name.as_str(), sent(member)?)))
    }

    /// All that the node knows, itself included.
    pub(crate) fn nodes(&self) -> BTreeSet<String> {
        self.members.iter().map(|member| member.node.clone()).collect()
    }
}

/// `/api/v1/topology`, as far as it is needed here.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Topology {
    overlay: String,
    trees: Vec<Tree>,
}

#[derive(Clone, Debug, Deserialize)]
struct Tree {
    root: String,
    complete: bool,
    nodes: Vec<TreeNode>,
}

#[derive(Clone, Debug, Deserialize)]
struct TreeNode {
    node: String,
}

impl Topology {
    /// Whether all trees that the node knows are finished and of these nodes alone; where there is one tree for everything, of all of
    /// them.
    pub(crate) fn is_of(&self, wanted: &BTreeSet<String>) -> bool {
        let nodes = |tree: &Tree| tree.nodes.iter().map(|node| node.node.clone()).collect::<BTreeSet<String>>();
        let fits = |tree: &Tree| tree.complete && wanted.contains(&tree.root) && nodes(tree).is_subset(wanted);
        let whole = || matches!(self.trees.as_slice(), [tree] if nodes(tree) == *wanted);
        self.trees.iter().all(fits) && (!matches!(self.overlay.as_str(), "flood" | "tree") || whole())
    }

    /// How many trees have this root.
    pub(crate) fn rooted_at(&self, node: &str) -> usize {
        self.trees.iter().filter(|tree| tree.root == node).count()
    }
}

/// Traffic over the links of a node, as its counters have it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LinkCounters {
    pub(crate) bytes: f64,
    /// None where only bytes are counted.
    pub(crate) publications: Option<f64>,
}

impl Api {
    /// The API at `base`, such as `http://127.0.0.1:8080`, for requests that show `token`.
    pub(crate) fn new(base: impl Into<String>, token: Option<Token>) -> Self {
        // A proxy would be asked for addresses of this machine that mean nothing to it.
        let config = Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None);
        Self { base: base.into(), agent: config.build().into(), token }
    }

    /// The node as a whole; none while it does not answer.
    pub(crate) fn status(&self) -> Option<Status> {
        self.get("/api/v1/status")
    }

    /// The cluster as the node sees it; none while it does not answer.
    pub(crate) fn view(&self) -> Option<View> {
        self.get("/api/v1/cluster")
    }

    /// The trees of the node's overlay; none while it does not answer.
    pub(crate) fn topology(&self) -> Option<Topology> {
        self.get("/api/v1/topology")
    }

    /// Traffic that the node has sent over its links; none if the node does not report it.
    pub(crate) fn links(&self) -> Option<LinkCounters> {
        // The metrics of another broker say nothing about links, which is not the same as no bytes.
        let text = self.text("/metrics").filter(|text| text.contains("sedge_link_sent_bytes_total"))?;
        let sum = |name: &str| sum(&text, name);
        Some(LinkCounters {
            bytes: sum("sedge_link_sent_bytes_total"),
            publications: Some(sum("sedge_link_publications_sent_total")),
        })
    }

    fn get<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        serde_json::from_str(&self.text(path)?).ok()
    }

    fn text(&self, path: &str) -> Option<String> {
        let request = self.agent.get(format!("{}{path}", self.base));
        let mut answer = Token::show(self.token.as_ref(), request).call().ok()?;
        answer.body_mut().with_config().limit(MOST_BYTES).read_to_string().ok()
    }
}

/// Sum of all samples of a metric in the Prometheus text format.
fn sum(text: &str, name: &str) -> f64 {
    let samples = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if !rest.starts_with([' ', '{']) {
            return None;
        }
        // A label's value may hold spaces; the text behind the last space is the number.
        rest.rsplit(' ').next()?.parse::<f64>().ok()
    });
    samples.sum()
}

/// Traffic that all nodes have sent over links; none if a node does not report it.
pub(crate) fn sum_links(apis: &[Api]) -> Option<LinkCounters> {
    if apis.is_empty() {
        return None;
    }
    let all: Vec<LinkCounters> = apis.iter().map(Api::links).collect::<Option<_>>()?;
    Some(LinkCounters {
        bytes: all.iter().map(|one| one.bytes).sum(),
        publications: all.iter().map(|one| one.publications).sum(),
    })
}

impl LinkCounters {
    /// Traffic since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        let publications = self.publications.zip(before.publications).map(|(now, before)| now - before);
        Self { bytes: self.bytes - before.bytes, publications }
    }

    /// The bytes of a time in which `quiet` went over the links in `quiet_s` seconds without any publication, for `seconds`.
    pub(crate) fn signalling(quiet: Self, quiet_s: f64, seconds: f64) -> f64 {
        num::ratio(quiet.bytes, quiet_s) * seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> View {
        serde_json::from_str(text).expect("a view")
    }

    #[test]
    fn a_view_is_complete_once_every_link_is_in_step() {
        let wanted: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let with = |link: &str| {
            view(&format!(
                r#"{{"members":[{{"node":"a","this":true,"link":null}},{{"node":"b","this":false,"link":{link}}}]}}"#
            ))
        };
        assert!(with(r#"{"synced":true}"#).is_exactly(&wanted) && with(r#"{"synced":true}"#).is_of(2));
        assert!(!with(r#"{"synced":false}"#).is_exactly(&wanted));
        assert!(!with("null").is_exactly(&wanted));
        let alone: BTreeSet<String> = ["a".to_owned()].into();
        assert!(!with(r#"{"synced":true}"#).is_exactly(&alone), "one too many");
        assert!(view(r#"{"members":[{"node":"a","this":true,"link":null}]}"#).is_exactly(&alone));
    }

    #[test]
    fn trees_are_whole_once_they_are_finished_and_of_those_that_are_left() {
        let wanted: BTreeSet<String> = ["a", "b"].map(str::to_owned).into();
        let with = |overlay: &str, trees: &str| -> Topology {
            serde_json::from_str(&format!(r#"{{"overlay":"{overlay}","trees":[{trees}]}}"#)).expect("a topology")
        };
        let tree = |root: &str, complete: bool, nodes: &[&str]| {
            let nodes: Vec<String> = nodes.iter().map(|node| format!(r#"{{"node":"{node}"}}"#)).collect();
            format!(r#"{{"root":"{root}","complete":{complete},"nodes":[{}]}}"#, nodes.join(","))
        };
        let both = tree("a", true, &["a", "b"]);
        assert!(with("tree", &both).is_of(&wanted) && with("topic-tree", &both).is_of(&wanted));
        assert_eq!((with("tree", &both).rooted_at("a"), with("tree", &both).rooted_at("b")), (1, 0));
        let part = tree("a", true, &["a"]);
        assert!(!with("flood", &part).is_of(&wanted) && with("topic-tree", &part).is_of(&wanted));
        assert!(!with("flood", "").is_of(&wanted) && with("mesh", "").is_of(&wanted));
        for wrong in [tree("a", false, &["a", "b"]), tree("c", true, &["a", "b"]), tree("a", true, &["a", "b", "c"])] {
            assert!(!with("tree", &wrong).is_of(&wanted) && !with("topic-tree", &wrong).is_of(&wanted), "{wrong}");
        }
    }

    #[test]
    fn samples_of_a_metric_are_added() {
        let text = "# HELP a_total x\na_total{peer=\"b c\"} 3\na_total{peer=\"d\"} 4.5\na_total_more 9\nb 1\n";
        assert!((sum(text, "a_total") - 7.5).abs() < 1e-12);
        assert!(sum(text, "c").abs() < 1e-12);
        assert!((sum(text, "b") - 1.0).abs() < 1e-12);
    }
}
