//! All members, each as it describes itself.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use sedge_base::NodeId;
use sedge_cluster::{MemberStatus, NodeStatus};

use super::ask::ask_node;
use super::desk::{Heard, Inquiry, ask_members};
use super::error::ApiError;
use super::handlers::{dead_model, own_status};
use super::history::totals;
use super::model::{JournalStatus, MemberSummary, Members, SilentMember, Summary};
use super::scope::label;
use super::server::Api;

/// All members, each as it describes itself, and those that do not answer within two seconds.
#[utoipa::path(get, path = "/api/v1/members", tag = "cluster", responses((status = 200, body = Members)))]
pub(super) async fn members(State(api): State<Api>) -> Result<Json<Members>, ApiError> {
    let node = ask_node(&api.shared, sedge_cluster::Node::status).await?;
    let others: Vec<NodeId> =
        node.members.iter().map(|member| member.node).filter(|other| *other != node.node).collect();
    let Heard { mut answers, silent } = ask_members::<Summary>(&api, &others, &Inquiry::Summary).await;
    answers.push((node.node, summary(&api).await?));
    let of = |id: NodeId| node.members.iter().find(|member| member.node == id);
    let mut members: Vec<MemberSummary> =
        answers.into_iter().map(|(id, summary)| member_model(of(id), id == node.node, summary)).collect();
    members
        .sort_by(|one, other| (&one.summary.name, &one.summary.node).cmp(&(&other.summary.name, &other.summary.node)));
    let silent = silent.into_iter().filter_map(of).map(silent_model).collect();
    let (cluster, dead) = (node.cluster.clone(), node.dead.iter().map(dead_model).collect());
    Ok(Json(Members { node: api.facts.node.clone(), cluster, members, silent, dead }))
}

fn member_model(member: Option<&MemberStatus>, this: bool, summary: Summary) -> MemberSummary {
    MemberSummary {
        this,
        address: member.map(|member| member.address.to_string()).unwrap_or_default(),
        clock_ahead_ms: member.and_then(|member| member.clock_ahead),
        rtt_micros: member.and_then(|member| member.link.as_ref()).map(|link| link.rtt_micros),
        summary,
    }
}

fn silent_model(member: &MemberStatus) -> SilentMember {
    SilentMember {
        node: member.node.to_string(),
        name: label(member),
        address: member.address.to_string(),
        linked: member.link.is_some(),
    }
}

/// This node's report about itself in a line of a list.
pub(super) async fn summary(api: &Api) -> Result<Summary, ApiError> {
    let status = own_status(api).await?;
    let digest = ask_node(&api.shared, sedge_cluster::Node::retained_digest).await?;
    Ok(Summary {
        node: status.node,
        name: status.name,
        incarnation: status.incarnation,
        version: status.version,
        broker: status.upstream.map(|broker| broker.make().to_owned()),
        state: status.state,
        ready: status.ready,
        not_ready: status.not_ready,
        warnings: status.warnings,
        uptime_seconds: status.uptime_seconds,
        durability: status.durability,
        disk_free_bytes: status.disk_free_bytes,
        subscriptions: status.subscriptions,
        retained: status.retained,
        retained_digest: format!("{digest:016x}"),
        stopping: api.shared.stopping.load(Ordering::Acquire),
        totals: totals(&api.shared).await?,
    })
}

/// Conditions that an operator should care about although the node serves.
pub(super) fn warnings(node: &NodeStatus, journal: Option<&JournalStatus>) -> Vec<String> {
    let full = journal.is_some_and(|journal| journal.full);
    warnings_of(full, (node.copies, node.copies_wanted), node.orphaned)
}

fn warnings_of(journal_full: bool, (copies, wanted): (usize, usize), orphaned: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    if journal_full {
        warnings.push(
            "the journal has no room: publications with QoS 1 and 2 are refused; free space in node.data_dir or raise node.max_journal_bytes"
                .to_owned(),
        );
    }
    if copies < wanted {
        warnings.push(format!("only {copies} of {wanted} copies of its sessions: a crash now may lose messages"));
    }
    if orphaned > 0 {
        warnings.push("the sessions of a node that is gone are being taken over".to_owned());
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// OP-07: a node that serves is not called well without a word while something is wrong.
    #[test]
    fn each_cause_of_worry_is_told() {
        assert_eq!(warnings_of(false, (2, 2), 0), Vec::<String>::new());
        let all = warnings_of(true, (1, 2), 1);
        let told = ["no room", "only 1 of 2 copies", "taken over"];
        assert!(all.len() == 3 && all.iter().zip(told).all(|(warning, part)| warning.contains(part)), "{all:?}");
    }
}
