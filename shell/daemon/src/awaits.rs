//! Publishers that wait for the other end of a bridge: which publications are gone from its session, wherever in the cluster that is.
//!
//! A question and its answer are bytes: those of this module begin with [`MARK`], all others with a brace.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use sedge_base::{ClientId, Incarnation, NodeId, ShardId};
use sedge_bridge::{Ack, Answered, BridgeConfig};
use sedge_broker::Awaits;
use sedge_cluster::shard_of;
use sedge_mqtt::{MessageId, TopicFilter};
use tokio::sync::mpsc::{self, error::TryRecvError};

use crate::Config;
use crate::bridges::{Inside, PATIENCE};
use crate::runtime::{Ask, Letter, Shared, View};

/// First byte of a question and of an answer.
pub(crate) const MARK: u8 = 1;
/// Publications of one question, which so has less than 32 KiB.
const IDS_MAX: usize = 1_000;
/// Bytes of one of them.
const ID_BYTES: usize = 26;
/// How long to sleep before looking for answers again.
const NAP: std::time::Duration = std::time::Duration::from_millis(2);

/// The sessions whose other ends decide when publishers are acknowledged.
pub(crate) fn sessions(config: &Config) -> Arc<[Awaits]> {
    let decides = |bridge: &BridgeConfig| bridge.ack == Ack::Remote && bridge.direction.goes_out();
    let awaits = |(name, bridge): (&String, &BridgeConfig)| Awaits {
        session: ClientId::new(&BridgeConfig::session_id(name)),
        filters: bridge.from.iter().filter_map(|filter| TopicFilter::new(filter).ok()).collect(),
    };
    config.bridges.iter().filter(|(_, bridge)| decides(bridge)).map(awaits).collect()
}

/// A node asks another which of these are gone from this session; without any, whether it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Question {
    session: ClientId,
    ids: Vec<MessageId>,
}

impl Question {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(3 + self.session.as_str().len() + self.ids.len() * ID_BYTES);
        out.put_u8(MARK);
        out.put_u16(u16::try_from(self.session.as_str().len()).unwrap_or(u16::MAX));
        out.put_slice(self.session.as_str().as_bytes());
        for id in &self.ids {
            out.put_u64(id.node.get());
            out.put_u64(id.incarnation.get());
            out.put_u16(id.shard.0);
            out.put_u64(id.seq);
        }
        out.freeze()
    }

    fn decode(mut from: Bytes) -> Option<Self> {
        if from.try_get_u8().ok()? != MARK {
            return None;
        }
        let length = usize::from(from.try_get_u16().ok()?);
        let session = from.get(..length).and_then(|name| std::str::from_utf8(name).ok()).map(ClientId::new)?;
        from.advance(length);
        let mut ids = Vec::new();
        while from.remaining() >= ID_BYTES && ids.len() < IDS_MAX {
            ids.push(MessageId {
                node: NodeId::new(from.get_u64()),
                incarnation: Incarnation::new(from.get_u64()),
                shard: ShardId(from.get_u16()),
                seq: from.get_u64(),
            });
        }
        from.is_empty().then_some(Self { session, ids })
    }

    /// One bit for each publication: whether it is gone. Empty: the session is not here.
    fn answer(&self, view: &View<'_>) -> Bytes {
        let broker = view.shard.broker();
        if self.ids.is_empty() && !broker.stands(&self.session) {
            return Bytes::new();
        }
        let Some(gone) = broker.gone_from(&self.session, &self.ids) else { return Bytes::new() };
        let mut bits = vec![0_u8; 1 + self.ids.len().div_ceil(8)];
        if let Some(first) = bits.first_mut() {
            *first = MARK;
        }
        for (place, id) in self.ids.iter().enumerate() {
            // The list of gone publications is in ascending order.
            if let (Ok(_), Some(byte)) = (gone.binary_search(id), bits.get_mut(1 + place / 8)) {
                *byte |= 1 << (place % 8);
            }
        }
        bits.into()
    }

    /// Which publications an answer calls gone.
    fn read(&self, answer: &[u8]) -> Option<Vec<MessageId>> {
        let bits = answer.strip_prefix(&[MARK]).filter(|bits| bits.len() == self.ids.len().div_ceil(8))?;
        let is_gone = |place: usize| bits.get(place / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0);
        Some(self.ids.iter().enumerate().filter(|(place, _)| is_gone(*place)).map(|(_, id)| *id).collect())
    }
}

/// Answers another node.
pub(crate) fn asked(shared: &Arc<Shared>, from: NodeId, request: u64, question: Bytes) {
    let Some(question) = Question::decode(question) else {
        return shared.post(ShardId(0), Letter::Answer(from, request, Bytes::new()));
    };
    let shards = u16::try_from(shared.boxes.len()).unwrap_or(1);
    let (shard, answers) = (shard_of(&question.session, shards), Arc::clone(shared));
    let look = move |view: &View<'_>| {
        answers.post(ShardId(0), Letter::Answer(from, request, question.answer(view)));
    };
    shared.post(shard, Letter::Query(Box::new(look)));
}

/// Looks which publications that publishers of this node wait for are gone from a bridge's session, and has their publishers answered. Until
/// somebody has the session, it looks for that.
pub(crate) fn answer_awaited(inside: &Inside, session: &str) -> Answered {
    let session = ClientId::new(session);
    let mut all = Answered::default();
    let mut stands = None;
    for shard in (0_u16..).zip(&inside.0.boxes).map(|(shard, _)| ShardId(shard)) {
        let client = session.clone();
        let look = move |view: &View<'_>| {
            let broker = view.shard.broker();
            (broker.knows_of(&client), broker.awaited(&client, IDS_MAX))
        };
        let Some((is_known, ids)) = inside.ask(shard, look) else { continue };
        let question = |ids| Question { session: session.clone(), ids };
        let is_news = !is_known && *stands.get_or_insert_with(|| gone(inside, &question(Vec::new())).is_some());
        let count = ids.len();
        let gone = if ids.is_empty() { Vec::new() } else { gone(inside, &question(ids)).unwrap_or_default() };
        all.gone += gone.len();
        all.left += count - gone.len();
        if is_news || !gone.is_empty() {
            inside.0.post(shard, Letter::Arrived(session.clone(), gone));
        }
    }
    all
}

/// Publications that are gone, as this node or all others that have the session say; `None`: nobody has it.
fn gone(inside: &Inside, question: &Question) -> Option<Vec<MessageId>> {
    let here = question.clone();
    let answer = inside.ask(inside.shard(&question.session), move |view| here.answer(view)).unwrap_or_default();
    if let Some(gone) = question.read(&answer) {
        return Some(gone);
    }
    let (answers, answered) = mpsc::unbounded_channel();
    inside.0.post(ShardId(0), Letter::Ask(Box::new(Ask { to: None, question: question.encode(), answers })));
    let all = collect(answered)?;
    let mut all = all.iter().filter_map(|answer| question.read(answer));
    let first = all.next()?;
    Some(all.fold(first, |gone, other| gone.into_iter().filter(|id| other.contains(id)).collect()))
}

/// The answers of all other nodes; `None`: some node has not answered in time.
fn collect(mut answered: mpsc::UnboundedReceiver<(NodeId, Bytes)>) -> Option<Vec<Bytes>> {
    let until = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while Instant::now() < until {
        match answered.try_recv() {
            Ok((_, answer)) => all.push(answer),
            Err(TryRecvError::Disconnected) => return Some(all),
            Err(TryRecvError::Empty) => thread::park_timeout(NAP),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(seq: u64) -> MessageId {
        MessageId { node: NodeId::new(7), incarnation: Incarnation::new(3), shard: ShardId(1), seq }
    }

    /// DP-03: the other node reads the question as it was asked; bytes that are too long, too short or of another module are no question.
    #[test]
    fn questions_survive_the_way() {
        let question = Question { session: ClientId::new("$bridge/cloud"), ids: (0..9).map(id).collect() };
        let bytes = question.encode();
        assert_eq!(Question::decode(bytes.clone()), Some(question));
        assert_eq!(Question::decode(bytes.slice(..bytes.len() - 1)), None);
        assert_eq!(Question::decode(Bytes::from_static(b"{}")), None);
        assert_eq!(Question::decode(Bytes::from_static(&[MARK, 0, 9, b'a'])), None);
    }

    /// DP-03
    #[test]
    fn an_answer_has_one_bit_for_each_publication() {
        let question = Question { session: ClientId::new("$bridge/cloud"), ids: (0..9).map(id).collect() };
        assert_eq!(question.read(&[MARK, 0b1000_0001, 1]), Some(vec![id(0), id(7), id(8)]));
        assert_eq!(question.read(&[MARK, 0]), None, "too short");
        assert_eq!(question.read(&[]), None, "the session is not there");
    }
}
