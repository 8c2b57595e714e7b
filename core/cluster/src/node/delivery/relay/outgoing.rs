//! The sender's side: publications that have not arrived yet, by destination.

use std::collections::BTreeMap;
use std::sync::Arc;

use sedge_base::{Duration, Instant, NodeId};
use sedge_mqtt::Message;

use super::Place;
use crate::link::End;

/// Bytes kept for one destination; more are refused.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A publication that has not arrived yet.
#[derive(Clone, Debug)]
pub(in crate::node) struct Open {
    pub message: Arc<Message>,
    pub plain: bool,
    pub retained_copy: bool,
    /// The publisher that waits for it, by its number in the acknowledgement table.
    pub entry: Option<u64>,
    pub since: Instant,
    /// Whether it was given to the link to the destination, which loses nothing while it stands.
    pub direct: bool,
}

impl Open {
    fn bytes(&self) -> usize {
        self.message.payload.len() + self.message.topic.as_bytes().len() + 128
    }
}

/// Everything for one destination.
#[derive(Debug, Default)]
pub(in crate::node) struct Stream {
    last: u64,
    behind: u64,
    open: BTreeMap<u64, Open>,
    bytes: usize,
    /// The last place that was told to the destination as a fence.
    fenced: Place,
}

impl Stream {
    /// Where this publication stands in the stream; `None` if there is no room to keep it.
    fn place(&mut self, node: NodeId, open: Open, is_kept: bool) -> Option<End> {
        if !is_kept {
            self.behind += 1;
            return Some(End { node, number: self.last, behind: self.behind });
        }
        if self.bytes + open.bytes() > MAX_BYTES {
            return None;
        }
        self.bytes += open.bytes();
        self.last += 1;
        self.behind = 0;
        self.open.insert(self.last, open);
        Some(End { node, number: self.last, behind: 0 })
    }

    /// Publications that have not arrived and are not on the direct link, after number `from` and before `to`.
    pub(super) fn indirect(&self, from: u64, to: u64) -> Vec<(u64, Open)> {
        let first = from.saturating_add(1);
        let range = self.open.range(first..to.max(first));
        range.filter(|(_, open)| !open.direct).map(|(number, open)| (*number, open.clone())).collect()
    }
}

/// Publications that have not arrived anywhere.
#[derive(Debug, Default)]
pub(in crate::node) struct Outgoing {
    streams: BTreeMap<NodeId, Stream>,
}

impl Outgoing {
    /// `is_kept`: until it has arrived.
    pub(super) fn place(&mut self, node: NodeId, open: Open, is_kept: bool) -> Option<End> {
        self.streams.entry(node).or_default().place(node, open, is_kept)
    }

    /// It was given to the link to the destination.
    pub(super) fn note_direct(&mut self, end: End) {
        if end.behind == 0
            && let Some(open) = self.streams.get_mut(&end.node).and_then(|stream| stream.open.get_mut(&end.number))
        {
            open.direct = true;
        }
    }

    pub(super) fn stream(&self, node: NodeId) -> Option<&Stream> {
        self.streams.get(&node)
    }

    /// The link to a destination has begun anew and may have lost what was given to it. Returns the number behind which the stream goes
    /// on, if it ever began.
    pub(super) fn restart(&mut self, node: NodeId) -> Option<u64> {
        let stream = self.streams.get_mut(&node)?;
        stream.open.values_mut().for_each(|open| open.direct = false);
        stream.fenced = (0, 0);
        Some(stream.open.keys().next().map_or(stream.last, |first| first - 1))
    }

    /// The destination has everything up to this number. Visits the publishers' entries.
    pub(super) fn arrived(&mut self, node: NodeId, up_to: u64, mut visit: impl FnMut(u64)) {
        let Some(stream) = self.streams.get_mut(&node) else { return };
        while let Some(first) = stream.open.first_entry().filter(|first| *first.key() <= up_to) {
            let open = first.remove();
            stream.bytes -= open.bytes();
            open.entry.into_iter().for_each(&mut visit);
        }
    }

    /// The destination is gone: the publications that it has not got. Its stream goes on with the next number if it comes back.
    pub(in crate::node) fn take(&mut self, node: NodeId) -> Vec<Open> {
        let Some(stream) = self.streams.get_mut(&node) else { return Vec::new() };
        stream.bytes = 0;
        core::mem::take(&mut stream.open).into_values().collect()
    }

    /// Destinations for which something has been on its way for this long and is neither there nor on the direct link.
    pub(super) fn overdue(&self, now: Instant, patience: Duration) -> Vec<NodeId> {
        let is_overdue = |stream: &Stream| {
            let oldest = stream.open.values().find(|open| !open.direct);
            oldest.is_some_and(|open| open.since + patience <= now)
        };
        self.streams.iter().filter(|(_, stream)| is_overdue(stream)).map(|(node, _)| *node).collect()
    }

    /// Destinations for which anything is open.
    pub(super) fn waiting(&self) -> Vec<NodeId> {
        self.streams.iter().filter(|(_, stream)| !stream.open.is_empty()).map(|(node, _)| *node).collect()
    }

    /// Publications that have not arrived.
    pub(in crate::node) fn len(&self) -> usize {
        self.streams.values().map(|stream| stream.open.len()).sum()
    }

    /// The place that control mail to this destination has to wait for there, if the destination does not know the place yet.
    pub(super) fn fence(&mut self, node: NodeId) -> Option<Place> {
        let stream = self.streams.get_mut(&node)?;
        let place = (stream.last, stream.behind);
        let is_open = !stream.open.is_empty() || stream.behind > 0;
        let is_news = is_open && stream.fenced < place;
        if is_news {
            stream.fenced = place;
        }
        is_news.then_some(place)
    }
}
