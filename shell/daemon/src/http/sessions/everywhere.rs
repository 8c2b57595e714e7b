//! Sessions of several nodes in one order: each node gives the next part of its own sorted list, and these are merged.

use std::cmp::Ordering;
use std::collections::VecDeque;

use sedge_base::NodeId;

use super::super::desk::{Heard, Inquiry, ask_each};
use super::super::error::ApiError;
use super::super::model::{Session, Sessions};
use super::super::scope::labels;
use super::super::server::Api;
use super::Wanted;
use super::select::Select;

/// Most sessions that may be left out at the beginning; a cursor goes on anywhere.
const OFFSET_MAX: usize = 10_000;
/// Most sessions that a node is asked for at once.
const PART: usize = 200;

/// The list of one node.
struct Source {
    /// `None`: the node that was asked.
    node: Option<NodeId>,
    /// Sessions that the node has answered and that are not in the page.
    waiting: VecDeque<Session>,
    /// Place from which the list goes on.
    cursor: Option<String>,
    asked: bool,
    ended: bool,
}

impl Source {
    const fn new(node: Option<NodeId>, cursor: Option<String>) -> Self {
        Self { node, waiting: VecDeque::new(), cursor, asked: false, ended: false }
    }

    fn is_hungry(&self) -> bool {
        !self.ended && self.waiting.is_empty()
    }

    /// Takes a part; returns how many sessions of the node match, the first time.
    fn take(&mut self, part: Sessions) -> usize {
        self.waiting.extend(part.sessions);
        self.ended = part.next.is_none();
        self.cursor = part.next;
        if std::mem::replace(&mut self.asked, true) { 0 } else { part.total }
    }
}

/// A page of the sessions of these nodes; `None` is the node that was asked.
pub(super) async fn page(
    api: &Api,
    nodes: Vec<Option<NodeId>>,
    wanted: &Wanted,
    (offset, limit): (usize, usize),
) -> Result<Sessions, ApiError> {
    if offset > OFFSET_MAX {
        return Err(ApiError::BadRequest(format!("offset is above {OFFSET_MAX}; go on with cursor")));
    }
    let select = Select::new(wanted)?;
    let mut sources: Vec<Source> = nodes.into_iter().map(|node| Source::new(node, wanted.cursor.clone())).collect();
    let (mut page, mut skip, mut silent) = (Vec::new(), offset, Vec::new());
    let mut total = 0;
    while page.len() < limit {
        let part = Wanted { limit: (limit - page.len() + skip).min(PART), ..wanted.clone() };
        total += refill(api, &mut sources, &part, &mut silent).await?;
        let Some(first) = first(&select, &mut sources) else { break };
        if skip > 0 {
            skip -= 1;
        } else {
            page.push(first);
        }
    }
    let more = sources.iter().any(|source| !source.ended || !source.waiting.is_empty());
    let next = page.last().filter(|_| more).map(|last| select.cursor_of(last));
    Ok(Sessions { total, offset, limit, sessions: page, next, silent: labels(api, &silent).await? })
}

/// Asks all nodes for more of which nothing waits; returns how many sessions match at those that are asked for the first time.
async fn refill(api: &Api, sources: &mut [Source], part: &Wanted, silent: &mut Vec<NodeId>) -> Result<usize, ApiError> {
    let mut total = 0;
    let questions = sources.iter().filter(|source| source.is_hungry()).filter_map(|source| {
        let wanted = Wanted { cursor: source.cursor.clone(), ..part.clone() };
        Some((source.node?, Inquiry::Sessions(wanted)))
    });
    let questions: Vec<_> = questions.collect();
    let heard: Heard<Sessions> = ask_each(api, questions.into_iter()).await;
    for (node, answer) in heard.answers {
        total += of(sources, Some(node)).map_or(0, |source| source.take(answer));
    }
    for node in heard.silent {
        silent.push(node);
        if let Some(source) = of(sources, Some(node)) {
            source.ended = true;
        }
    }
    if let Some(source) = of(sources, None).filter(|source| source.is_hungry()) {
        let wanted = Wanted { cursor: source.cursor.clone(), ..part.clone() };
        total += source.take(super::selected(api, &wanted).await?);
    }
    Ok(total)
}

fn of(sources: &mut [Source], node: Option<NodeId>) -> Option<&mut Source> {
    sources.iter_mut().find(|source| source.node == node)
}

/// Takes the session out that is first in the order.
fn first(select: &Select, sources: &mut [Source]) -> Option<Session> {
    let order = |one: &Session, other: &Session| select.order_of(one, other);
    let heads = sources.iter_mut().filter(|source| !source.waiting.is_empty());
    let best = heads.min_by(|one, other| match (one.waiting.front(), other.waiting.front()) {
        (Some(one), Some(other)) => order(one, other),
        _ => Ordering::Equal,
    })?;
    best.waiting.pop_front()
}
