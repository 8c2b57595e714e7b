//! Sessions of all shards in an order, as many as a page has, without a shard being held up by all of its sessions at once.

use std::cmp::Ordering;
use std::sync::Arc;

use sedge_base::{ClientId, ShardId};
use sedge_broker::SessionBrief;
use serde::{Deserialize, Serialize};

use super::super::ask::ask;
use super::super::error::ApiError;
use super::super::model::Session;
use super::Wanted;
use crate::runtime::{Shared, View};

/// Most sessions that a shard looks at in one turn.
const SURVEY: usize = 1_000;
/// Longest text that is searched for.
const SEARCH_BYTES_MAX: usize = 256;

/// What sessions are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum SortBy {
    /// Client identifier.
    #[default]
    Client,
    /// Messages that wait.
    Queued,
    /// Bytes that wait.
    Bytes,
    /// Messages sent and not acknowledged.
    Inflight,
    /// Number of subscriptions.
    Subscriptions,
    /// When the client lost its connection; connected clients come as the latest.
    Away,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum Order {
    /// Smallest first.
    Asc,
    /// Largest first.
    Desc,
}

/// Where a session is in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rank {
    value: u64,
    client: ClientId,
}

/// Which sessions, and in which order.
#[derive(Clone, Debug)]
pub(super) struct Select {
    by: SortBy,
    order: Order,
    search: String,
    connected: Option<bool>,
    after: Option<Rank>,
}

/// A page of clients.
pub(super) struct Page {
    pub(super) clients: Vec<ClientId>,
    /// How many match.
    pub(super) total: usize,
    /// Where the next page begins.
    pub(super) next: Option<String>,
}

impl Select {
    pub(super) fn new(wanted: &Wanted) -> Result<Self, ApiError> {
        let Wanted { cursor, search, connected, sort, order, .. } = wanted;
        let by = sort.unwrap_or_default();
        let usual = if by == SortBy::Client { Order::Asc } else { Order::Desc };
        let search = search.clone().unwrap_or_default();
        if search.len() > SEARCH_BYTES_MAX {
            return Err(ApiError::BadRequest(format!("search is longer than {SEARCH_BYTES_MAX} bytes")));
        }
        let after = cursor.as_ref().map(|cursor| Rank::parse(cursor).ok_or(cursor)).transpose();
        let after = after.map_err(|_cursor| ApiError::BadRequest("no such cursor".to_owned()))?;
        Ok(Self { by, order: (*order).unwrap_or(usual), search, connected: *connected, after })
    }

    fn rank(&self, brief: &SessionBrief<'_>) -> u64 {
        match self.by {
            SortBy::Client => 0,
            SortBy::Queued => brief.queued as u64,
            SortBy::Bytes => brief.queued_bytes as u64,
            SortBy::Inflight => brief.inflight as u64,
            SortBy::Subscriptions => brief.subscriptions as u64,
            SortBy::Away => brief.disconnected_at.map_or(u64::MAX, sedge_base::Timestamp::as_millis),
        }
    }

    /// As [`Select::rank`], of a session as it is told.
    fn rank_of(&self, session: &Session) -> Rank {
        let value = match self.by {
            SortBy::Client => 0,
            SortBy::Queued => session.queued_messages as u64,
            SortBy::Bytes => session.queued_bytes as u64,
            SortBy::Inflight => session.inflight as u64,
            SortBy::Subscriptions => session.subscriptions_total as u64,
            SortBy::Away => session.disconnected_at_ms.unwrap_or(u64::MAX),
        };
        Rank { value, client: ClientId::new(&session.client) }
    }

    /// Which of two sessions is first.
    pub(super) fn order_of(&self, one: &Session, other: &Session) -> Ordering {
        let one = self.rank_of(one);
        self.compare((one.value, one.client.as_str()), &self.rank_of(other))
    }

    /// The `cursor` for the sessions behind this one.
    pub(super) fn cursor_of(&self, session: &Session) -> String {
        self.rank_of(session).cursor()
    }

    fn compare(&self, (value, client): (u64, &str), other: &Rank) -> Ordering {
        let ordering = value.cmp(&other.value).then_with(|| client.cmp(other.client.as_str()));
        if self.order == Order::Desc { ordering.reverse() } else { ordering }
    }

    fn matches(&self, brief: &SessionBrief<'_>) -> bool {
        let has = |text: &str| contains(text, &self.search);
        self.connected.is_none_or(|connected| connected == brief.disconnected_at.is_none())
            && (self.search.is_empty()
                || has(brief.client.as_str())
                || brief.peer.is_some_and(has)
                || brief.user.is_some_and(has))
    }

    /// Goes through all shards and keeps the first `limit` sessions of the order.
    pub(super) async fn run(self, shared: &Shared, limit: usize) -> Result<Page, ApiError> {
        let select = Arc::new(self);
        let (mut best, mut total, mut more) = (Vec::<Rank>::new(), 0, false);
        for shard in 0..shared.boxes.len() {
            let shard = ShardId(u16::try_from(shard).unwrap_or(u16::MAX));
            let mut from = Some(0);
            while let Some(place) = from {
                let (asked, worst) = (Arc::clone(&select), best.get(limit.saturating_sub(1)).cloned());
                let part = move |view: &View<'_>| asked.survey(view, place, worst.as_ref());
                let (found, matched, next) = ask(shared, shard, part).await?;
                (total, from) = (total + matched, next);
                best.extend(found);
                best.sort_by(|rank, other| select.compare((rank.value, rank.client.as_str()), other));
                more |= best.len() > limit;
                best.truncate(limit);
            }
        }
        let next = best.last().filter(|_| more).map(Rank::cursor);
        Ok(Page { clients: best.into_iter().map(|rank| rank.client).collect(), total, next })
    }

    /// A part of a shard's sessions from a place on: those after the cursor, and before or at `worst`; the number that match at all; and
    /// the next place. A session that is worse than a full page is still listed once, to show that there are more.
    fn survey(&self, view: &View<'_>, from: usize, worst: Option<&Rank>) -> (Vec<Rank>, usize, Option<usize>) {
        let (mut found, mut matched, mut beyond) = (Vec::new(), 0, None);
        let next = view.shard.broker().survey(from, SURVEY, |brief| {
            if !self.matches(&brief) {
                return;
            }
            matched += 1;
            let place = (self.rank(&brief), brief.client.as_str());
            if self.after.as_ref().is_some_and(|after| self.compare(place, after) != Ordering::Greater) {
                return;
            }
            let rank = Rank { value: place.0, client: brief.client.clone() };
            match worst {
                Some(worst) if self.compare(place, worst) == Ordering::Greater => beyond = Some(rank),
                Some(_) | None => found.push(rank),
            }
        });
        found.extend(beyond);
        (found, matched, next)
    }
}

impl Rank {
    fn parse(text: &str) -> Option<Self> {
        let (value, client) = text.split_once(':')?;
        Some(Self { value: u64::from_str_radix(value, 16).ok()?, client: ClientId::new(client) })
    }

    fn cursor(&self) -> String {
        format!("{:x}:{}", self.value, self.client.as_str())
    }
}

/// Whether `text` has `wanted` in it; the case of ASCII letters does not count.
fn contains(text: &str, wanted: &str) -> bool {
    wanted.is_empty() || text.as_bytes().windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(cursor: Option<&str>) -> Wanted {
        let cursor = cursor.map(str::to_owned);
        Wanted { limit: 10, cursor, search: None, connected: None, sort: None, order: None }
    }

    fn select(by: SortBy, order: Option<Order>, cursor: Option<&str>) -> Select {
        Select::new(&Wanted { sort: Some(by), order, ..wanted(cursor) }).unwrap()
    }

    #[test]
    fn names_go_up_and_numbers_down_unless_told_otherwise() {
        let rank = |value, client| Rank { value, client: ClientId::new(client) };
        let before = |select: &Select, one: &Rank, other: &Rank| {
            select.compare((one.value, one.client.as_str()), other) == Ordering::Less
        };
        assert!(before(&select(SortBy::Client, None, None), &rank(0, "a"), &rank(0, "b")));
        assert!(before(&select(SortBy::Client, Some(Order::Desc), None), &rank(0, "b"), &rank(0, "a")));
        assert!(before(&select(SortBy::Queued, None, None), &rank(9, "z"), &rank(3, "a")));
        assert!(before(&select(SortBy::Queued, Some(Order::Asc), None), &rank(3, "z"), &rank(9, "a")));
    }

    #[test]
    fn a_cursor_is_the_place_of_the_last_session() {
        let rank = Rank { value: 255, client: ClientId::new("a:b ü") };
        assert_eq!(Rank::parse(&rank.cursor()), Some(rank));
        assert!(Select::new(&wanted(Some("nonsense"))).is_err());
        let search = Some("x".repeat(SEARCH_BYTES_MAX + 1));
        assert!(Select::new(&Wanted { search, ..wanted(None) }).is_err());
    }

    #[test]
    fn a_search_finds_parts_of_any_case() {
        assert!(contains("Sensor-7", "sor-7") && contains("abc", "ABC") && contains("x", ""));
        assert!(!contains("ab", "abc") && !contains("sensor", "7"));
    }
}
