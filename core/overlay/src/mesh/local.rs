//! The subscriptions of this node's clients, and the changes of them that the neighbours have not been told yet.

use std::collections::BTreeMap;

use sedge_base::Instant;

use super::peer::as_advert;
use super::signal::{Signal, encoded_len};
use super::table::{Effect, Key, Table};
use crate::{Advert, AdvertOp, Token};

#[derive(Debug, Default)]
pub(super) struct Local {
    table: Table,
    /// The last change of each entry: earlier changes of it do not matter.
    untold: BTreeMap<Key, AdvertOp>,
    /// Tokens that wait for untold changes, and until when each of them waits.
    pub(super) tokens: Vec<(Token, Instant)>,
    /// Number of the last signal that carried changes, or that asked for nothing but an answer.
    pub(super) number: u64,
    /// Somebody waits for an answer of all neighbours although nothing changes.
    pub(super) asks_all: bool,
}

impl Local {
    pub(super) fn apply(&mut self, change: Advert) {
        // Too long for MQTT: no client can have sent it.
        if encoded_len(&change).is_some() && self.table.apply(&change) != Effect::Nothing {
            self.untold.insert((change.client, change.filter), change.op);
        }
    }

    pub(super) fn has_news(&self) -> bool {
        self.asks_all || !self.untold.is_empty()
    }

    /// Signals with all changes that the neighbours have not been told yet.
    pub(super) fn take_news(&mut self, limit: usize) -> Vec<Signal> {
        let untold = core::mem::take(&mut self.untold);
        let question = core::mem::take(&mut self.asks_all).then(Vec::new);
        let changes = untold.into_iter().map(|((client, filter), op)| Advert { client, filter, op });
        let number = &mut self.number;
        let pieces = cut(changes, limit).chain(question);
        pieces
            .map(|changes| {
                *number += 1;
                Signal::Adv { number: *number, changes }
            })
            .collect()
    }

    /// Signals with the whole table, as it is after [`Local::take_news`].
    pub(super) fn snapshot(&self, limit: usize) -> impl Iterator<Item = Signal> {
        let entries = self.table.iter().map(|(key, entry)| as_advert(key, entry.online));
        let chunks = cut(entries, limit).map(Signal::SnapshotChunk);
        core::iter::once(Signal::SnapshotBegin).chain(chunks).chain([Signal::SnapshotEnd(self.number)])
    }

    pub(super) fn digest(&self) -> Signal {
        let (entries, hash) = self.table.digest();
        Signal::Digest { entries, hash }
    }
}

/// Cuts changes into pieces of about `limit` bytes.
fn cut(changes: impl Iterator<Item = Advert>, limit: usize) -> impl Iterator<Item = Vec<Advert>> {
    let mut changes = changes.peekable();
    core::iter::from_fn(move || {
        changes.peek()?;
        let mut piece = Vec::new();
        let mut bytes = 0;
        while bytes < limit {
            let Some(change) = changes.next() else { break };
            bytes += encoded_len(&change).unwrap_or_default();
            piece.push(change);
        }
        Some(piece)
    })
}
