//! Bridges and rules of the whole cluster: each member has them all, and one of them runs each.

use std::collections::BTreeMap;

use sedge_base::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::ask::ask_node;
use super::desk::{ANSWER_BYTES, Heard, Inquiry, ask_each};
use super::error::ApiError;
use super::scope::{Scope, label, labels, members, scope};
use super::server::Api;

/// Most bytes of an error in an answer to another node.
const ERROR_BYTES: usize = 512;
/// Most entries that one member is believed to have: more than a configuration may.
const ENTRIES_MAX: usize = 2_000;

/// Which nodes are asked.
#[derive(Clone, Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Name or id of the node that is asked; `*`: all members, each bridge or rule as the node that runs it sees it. The node itself if nothing is said.
    pub(super) node: Option<String>,
}

/// A bridge or a rule, as one node sees it.
pub(super) trait Worker: Serialize + DeserializeOwned + Clone {
    /// Its name in the configuration.
    fn name(&self) -> &str;

    /// How far it has come.
    fn state(&self) -> &str;

    /// The last error.
    fn error(&mut self) -> &mut Option<String>;

    /// Adds the state and the counts of another node.
    fn add(&mut self, other: &Self);
}

/// Some of those of one node.
#[derive(Serialize, Deserialize)]
pub(super) struct Part<T> {
    list: Vec<T>,
    /// How many there are.
    total: usize,
}

/// Those of the nodes that `node` names; and who is silent. `part` is the question for those from a place on.
pub(super) async fn found<T: Worker>(
    api: &Api,
    node: Option<&str>,
    own: Vec<T>,
    part: impl Fn(usize) -> Inquiry,
) -> Result<(Vec<T>, Vec<String>), ApiError> {
    Ok(match scope(api, node).await? {
        Scope::Here => (own, Vec::new()),
        Scope::One(node) => {
            let heard = ask_all_parts::<T>(api, &[node], part).await;
            (heard.answers.into_iter().next().ok_or(ApiError::Silent)?.1, Vec::new())
        }
        Scope::All(others) => {
            let heard = ask_all_parts::<T>(api, &others, part).await;
            let lists = heard.answers.into_iter().map(|(_, list)| list);
            (merged(lists.chain([own])), labels(api, &heard.silent).await?)
        }
    })
}

/// The whole lists of these members, asked for as often as it takes.
async fn ask_all_parts<T: Worker>(api: &Api, whom: &[NodeId], part: impl Fn(usize) -> Inquiry) -> Heard<Vec<T>> {
    let mut all = Heard { answers: Vec::new(), silent: Vec::new() };
    let mut rest: BTreeMap<NodeId, Vec<T>> = whom.iter().map(|node| (*node, Vec::new())).collect();
    while !rest.is_empty() {
        let questions: Vec<_> = rest.iter().map(|(node, list)| (*node, part(list.len()))).collect();
        let Heard { answers, silent } = ask_each::<Part<T>>(api, questions.into_iter()).await;
        all.silent.extend(silent.into_iter().inspect(|node| drop(rest.remove(node))));
        for (node, Part { list, total }) in answers {
            let Some(mut known) = rest.remove(&node) else { continue };
            let is_last = list.is_empty();
            known.extend(list);
            if is_last || known.len() >= total.min(ENTRIES_MAX) {
                all.answers.push((node, known));
            } else {
                rest.insert(node, known);
            }
        }
    }
    all
}

/// The part from this place on that another node asks for, as much of it as fits into an answer.
pub(super) fn fitted<T: Worker>(all: Vec<T>, from: usize) -> Part<T> {
    let (total, mut bytes) = (all.len(), 256);
    let fits = |worker: &T| {
        bytes += serde_json::to_string(worker).map_or(0, |text| text.len() + 1);
        bytes < ANSWER_BYTES
    };
    let short = |mut worker: T| {
        if let Some(error) = worker.error() {
            error.truncate(error.floor_char_boundary(ERROR_BYTES));
        }
        worker
    };
    Part { list: all.into_iter().skip(from).map(short).take_while(fits).collect(), total }
}

/// Each as the node that runs it sees it.
fn merged<T: Worker>(lists: impl Iterator<Item = Vec<T>>) -> Vec<T> {
    let rank = |worker: &T| match worker.state() {
        "running" => 3,
        "down" => 2,
        "elsewhere" => 1,
        _ => 0,
    };
    let mut all = BTreeMap::<String, T>::new();
    for mut worker in lists.flatten() {
        let name = worker.name().to_owned();
        let Some(known) = all.get_mut(&name) else {
            all.insert(name, worker);
            continue;
        };
        if rank(&worker) > rank(known) {
            std::mem::swap(known, &mut worker);
        }
        known.add(&worker);
    }
    all.into_values().collect()
}

/// Labels of the members, by id.
pub(super) async fn names(api: &Api) -> Result<BTreeMap<String, String>, ApiError> {
    let pair = |member: &sedge_cluster::MemberStatus| (member.node.to_string(), label(member));
    ask_node(&api.shared, move |node| members(node).iter().map(pair).collect()).await
}

#[cfg(test)]
mod tests {
    use super::super::model::Bridge;
    use super::*;

    fn seen(name: &str, state: &str, out: u64) -> Bridge {
        Bridge { name: name.to_owned(), state: state.to_owned(), messages_out: out, ..Bridge::default() }
    }

    /// OP-01, OP-02: the cluster's bridges are one list, whichever node runs them.
    #[test]
    fn each_bridge_is_as_its_node_sees_it() {
        let one = vec![seen("a", "elsewhere", 2), Bridge { lag: 7, ..seen("b", "down", 1) }, seen("c", "waiting", 0)];
        let two = vec![seen("a", "running", 5), seen("b", "elsewhere", 0)];
        let all = merged([one, two].into_iter());
        let told: Vec<_> = all.iter().map(|one| (&*one.name, &*one.state, one.messages_out, one.lag)).collect();
        assert_eq!(told, [("a", "running", 7, 0), ("b", "down", 1, 7), ("c", "waiting", 0, 0)]);
    }

    #[test]
    fn a_long_list_goes_in_parts_and_errors_are_cut() {
        let long =
            |number: usize| Bridge { last_error: Some("\u{e4}".repeat(9_000)), ..seen(&number.to_string(), "down", 0) };
        let all: Vec<Bridge> = (0..100).map(long).collect();
        let mut got = 0;
        while got < all.len() {
            let part = fitted(all.clone(), got);
            assert!(!part.list.is_empty() && part.total == 100);
            assert!(serde_json::to_vec(&part).unwrap().len() <= ANSWER_BYTES);
            got += part.list.len();
        }
        assert_eq!(fitted(all, 100).list.len(), 0);
    }
}
