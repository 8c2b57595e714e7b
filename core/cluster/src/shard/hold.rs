//! Nothing leaves a shard before what it depends on is copied to other nodes (DESIGN section 5, "The two-copy rule").
//!
//! At the end of a turn everything that it has changed becomes a batch. Bytes for clients that were written in the turn, answers to
//! marks, and QoS 2 publications on their way to others (with all mail behind them) wait until the batch is copied; bytes for clients,
//! which may hold an acknowledgement, also until every other shard that was sent a publication has copied what it has caused there.

use std::collections::{BTreeSet, VecDeque};

use bytes::BytesMut;
use sedge_base::{ConnId, NodeId, Now, ShardId};
use sedge_broker::Ticket;
use sedge_mqtt::{Message, MessageId, QoS};

use super::Shard;
use crate::ShardOutput;
use crate::mail::{Handed, Life, Mark, ToNode, ToShard};

/// Bytes of what was there before that are copied at a time, about.
const COPY_BYTES: u64 = 256 * 1024;

/// Room in which a batch begins at most.
const BATCH_ROOM_MAX: usize = 64 * 1024;

/// Bytes that wait.
#[derive(Debug)]
struct Turn {
    batch: u64,
    /// For each shard the mark that it has to have answered.
    marks: Vec<u64>,
    /// Connections, and the positions up to which their outboxes may be written.
    ends: Vec<(ConnId, u64)>,
    /// Connections that are to be closed then.
    closed: Vec<ConnId>,
}

/// Somebody who waits until everything that was there is copied.
#[derive(Clone, Debug)]
enum Answer {
    Mark(Mark),
    /// See [`ToShard::Kept`].
    Kept(ShardId, u64),
    Inherited(Life),
    /// See [`ToNode::Installed`].
    Installed(NodeId, Handed),
}

/// A QoS 2 publication that was read from a client.
pub(super) type Read = (Ticket, MessageId);

/// Outputs that wait for copies.
#[derive(Debug)]
pub(super) struct Hold {
    attempt: u32,
    /// Whether what there was before is still being copied.
    is_filling: bool,
    /// The last batch, and the last that is copied.
    batch: u64,
    copied: u64,
    /// Size of the last batch.
    batch_bytes: usize,
    turns: VecDeque<Turn>,
    answers: VecDeque<(u64, Answer)>,
    mail: VecDeque<(u64, ShardOutput)>,
    /// QoS 2 publications of clients that are not copied; as many as publishers may send without an answer.
    reads: VecDeque<(u64, Read)>,
    /// For each shard the last mark sent to it, and the last that it has answered.
    marks: Vec<u64>,
    answered: Vec<u64>,
    /// Outputs of the present turn.
    touched: Vec<ConnId>,
    closed: Vec<ConnId>,
    asked: Vec<Answer>,
    kept: Vec<ShardOutput>,
    read: Vec<Read>,
    told: Vec<ShardId>,
}

impl Hold {
    /// `batch` is the last one there was: numbers never come again.
    fn new(shards: u16, batch: u64) -> Self {
        let shards = usize::from(shards);
        Self {
            attempt: 0,
            is_filling: false,
            batch,
            copied: batch,
            batch_bytes: 0,
            turns: VecDeque::new(),
            answers: VecDeque::new(),
            mail: VecDeque::new(),
            reads: VecDeque::new(),
            marks: vec![0; shards],
            answered: vec![0; shards],
            touched: Vec::new(),
            closed: Vec::new(),
            asked: Vec::new(),
            kept: Vec::new(),
            read: Vec::new(),
            told: Vec::new(),
        }
    }

    /// The connection's outbox was written to.
    pub(super) fn touch(&mut self, conn: ConnId) {
        self.touched.push(conn);
    }

    /// The connection is to be closed when it is written out.
    pub(super) fn close(&mut self, conn: ConnId) {
        self.closed.push(conn);
    }

    /// A publication goes to this shard.
    pub(super) fn tells(&mut self, shard: ShardId, message: &Message) {
        if message.qos > QoS::AtMostOnce && !self.told.contains(&shard) {
            self.told.push(shard);
        }
    }

    /// Whether mail is kept back, so that nothing may overtake it.
    pub(super) fn keeps_mail(&self) -> bool {
        !self.mail.is_empty() || !self.kept.is_empty()
    }

    /// Keeps mail back until what the turn has changed is copied.
    pub(super) fn keep(&mut self, mail: ShardOutput) {
        self.kept.push(mail);
    }

    /// A client has sent a QoS 2 publication.
    pub(super) fn reads(&mut self, ticket: Ticket, id: MessageId) {
        self.read.push((ticket, id));
    }

    /// QoS 2 publications of clients that are not copied.
    pub(super) fn reads_open(&self) -> usize {
        self.reads.len() + self.read.len()
    }

    /// Takes out the QoS 2 publications that are in no batch up to this one, with their mail. Returns them with the connections that were
    /// given something since.
    pub(super) fn take_read_since(&mut self, batch: u64) -> (Vec<Read>, BTreeSet<ConnId>) {
        let at = self.reads.partition_point(|(of, _)| *of <= batch);
        let reads: Vec<Read> = self.reads.drain(at..).map(|(_, read)| read).chain(self.read.drain(..)).collect();
        if reads.is_empty() {
            return (reads, BTreeSet::new());
        }
        let ids: BTreeSet<MessageId> = reads.iter().map(|(_, id)| *id).collect();
        let stays = |mail: &ShardOutput| message_of(mail).is_none_or(|message| !ids.contains(&message.id));
        self.mail.retain(|(_, mail)| stays(mail));
        self.kept.retain(stays);
        let later = self.turns.iter().filter(|turn| turn.batch > batch);
        let given = later.flat_map(|turn| &turn.ends).map(|(conn, _)| *conn).chain(self.touched.iter().copied());
        (reads, given.collect())
    }

    /// Others took this node for dead. QoS 2 publications of its clients that are in a batch on its way to the backups go nowhere from here: the successor
    /// passes them on, as its copy has them.
    pub(super) fn passes_nothing_on(&mut self) {
        let ids: BTreeSet<MessageId> = self.reads.drain(..).map(|(_, (_, id))| id).collect();
        let is_other = |mail: &ShardOutput| message_of(mail).is_none_or(|message| !ids.contains(&message.id));
        self.mail.retain(|(_, mail)| is_other(mail));
    }

    fn has_news(&self) -> bool {
        let clients = !self.touched.is_empty() || !self.closed.is_empty();
        clients || !self.asked.is_empty() || !self.kept.is_empty() || !self.told.is_empty()
    }

    fn forget_copied_reads(&mut self) {
        let at = self.reads.partition_point(|(batch, _)| *batch <= self.copied);
        self.reads.drain(..at);
    }

    fn next_turn(&mut self) -> Option<Turn> {
        let turn = self.turns.front()?;
        let answered = turn.marks.iter().zip(&self.answered).all(|(mark, answered)| mark <= answered);
        if turn.batch <= self.copied && answered { self.turns.pop_front() } else { None }
    }
}

/// The publication that mail is about.
fn message_of(mail: &ShardOutput) -> Option<&Message> {
    if let ShardOutput::ToNode(ToNode::Publish(publish)) = mail {
        return Some(&publish.message);
    }
    let ShardOutput::ToShard(_, mail) = mail else { return None };
    if let ToShard::Plain(message) = mail {
        Some(message)
    } else if let ToShard::Share(deliver) = mail {
        Some(&deliver.message)
    } else if let ToShard::Exact(exact) = mail {
        Some(&exact.deliver.message)
    } else if let ToShard::Again(again) = mail {
        Some(&again.message)
    } else {
        None
    }
}

impl Shard {
    /// Ends a turn: to be called when all events of the turn were fed and all outputs taken, and followed by taking outputs again.
    /// Events that a driver feeds between two calls are copied together or not at all.
    pub fn end_turn(&mut self, now: Now) {
        if self.hold.is_none() {
            return;
        }
        self.make_batch();
        let Some(hold) = &mut self.hold else { return };
        let me = self.place.shard;
        for shard in core::mem::take(&mut hold.told) {
            let Some(mark) = hold.marks.get_mut(usize::from(shard.0)) else { continue };
            *mark += 1;
            let mail = ShardOutput::ToShard(shard, ToShard::Mark(Mark::Shard(me, *mark)));
            if hold.keeps_mail() { hold.keep(mail) } else { self.outputs.push_back(mail) }
        }
        let batch = hold.batch;
        hold.answers.extend(hold.asked.drain(..).map(|answer| (batch, answer)));
        hold.mail.extend(hold.kept.drain(..).map(|mail| (batch, mail)));
        hold.reads.extend(hold.read.drain(..).map(|read| (batch, read)));
        if !hold.touched.is_empty() || !hold.closed.is_empty() {
            let mut ends = Vec::with_capacity(hold.touched.len());
            for conn in hold.touched.drain(..) {
                ends.extend(self.broker.outbox(conn).map(|outbox| (conn, outbox.end())));
            }
            let closed = core::mem::take(&mut hold.closed);
            hold.turns.push_back(Turn { batch, marks: hold.marks.clone(), ends, closed });
        }
        self.let_out(now);
    }

    /// Whether [`Shard::end_turn`] has something to do that will not come by itself.
    pub fn is_turn_open(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.has_news())
    }

    /// The changes since the last batch become a batch.
    fn make_batch(&mut self) {
        // One turn is much like the next.
        let room = self.hold.as_ref().map_or(0, |hold| hold.batch_bytes);
        let mut bytes = BytesMut::with_capacity(room);
        self.seal(&mut bytes);
        let has_batch = !bytes.is_empty();
        let batch = self.hold.as_ref().map_or(0, |hold| hold.batch + 1);
        if let Some(tracer) = self.broker.tracer_mut() {
            if has_batch { tracer.sealed(batch) } else { tracer.sealed_without_batch() }
        }
        if !has_batch {
            return;
        }
        if self.writes_journal {
            self.sealed.extend_from_slice(&bytes);
        }
        let Some(hold) = &mut self.hold else { return };
        hold.batch += 1;
        hold.batch_bytes = bytes.len().min(BATCH_ROOM_MAX);
        let (number, attempt) = (hold.batch, hold.attempt);
        let batch = ToNode::Batch { number, attempt, bytes: bytes.freeze() };
        self.outputs.push_back(ShardOutput::ToNode(batch));
    }

    /// Lets out what waits no longer.
    fn let_out(&mut self, now: Now) {
        if let Some(hold) = &mut self.hold {
            hold.forget_copied_reads();
        }
        while let Some(hold) = &mut self.hold
            && let Some((_, answer)) = hold.answers.pop_front_if(|(batch, _)| *batch <= hold.copied)
        {
            self.answer(answer);
        }
        while let Some(turn) = self.hold.as_mut().and_then(|hold| hold.next_turn()) {
            for (conn, end) in turn.ends {
                if let Some(outbox) = self.broker.outbox(conn) {
                    outbox.allow(end);
                    self.outputs.push_back(ShardOutput::Transmit(conn));
                }
            }
            self.outputs.extend(turn.closed.into_iter().map(ShardOutput::Close));
        }
        while let Some(hold) = &mut self.hold
            && let Some((_, mail)) = hold.mail.pop_front_if(|(batch, _)| *batch <= hold.copied)
        {
            self.outputs.push_back(mail);
        }
        self.drain_broker(now);
    }

    fn answer(&mut self, answer: Answer) {
        let by = self.place.shard;
        match answer {
            Answer::Mark(Mark::Node(mark)) => self.outputs.push_back(ShardOutput::ToNode(ToNode::Marked(mark))),
            Answer::Mark(Mark::Shard(shard, mark)) => {
                self.outputs.push_back(ShardOutput::ToShard(shard, ToShard::Marked { by, mark }));
            }
            Answer::Kept(shard, number) => {
                self.outputs.push_back(ShardOutput::ToShard(shard, ToShard::Kept(number)));
            }
            Answer::Inherited(life) => self.outputs.push_back(ShardOutput::ToNode(ToNode::Inherited(life))),
            Answer::Installed(from, handed) => {
                let installed = ToNode::Installed(Box::new((from, handed)));
                self.outputs.push_back(ShardOutput::ToNode(installed));
            }
        }
    }

    /// Somebody wants to know when everything so far is copied.
    pub(super) fn mark(&mut self, mark: Mark) {
        if let Some(mark) = self.delay_mark(mark) {
            self.answer_mark(mark);
        }
    }

    pub(super) fn answer_mark(&mut self, mark: Mark) {
        self.ask(Answer::Mark(mark));
    }

    /// A publication of another shard is here.
    pub(super) fn keeps(&mut self, from: ShardId, number: u64) {
        self.ask(Answer::Kept(from, number));
    }

    /// The sessions of a node that is gone are here.
    pub(super) fn has_inherited(&mut self, life: Life) {
        self.ask(Answer::Inherited(life));
    }

    /// A session is here that this node has given away.
    pub(super) fn has_installed(&mut self, from: NodeId, handed: Handed) {
        self.ask(Answer::Installed(from, handed));
    }

    fn ask(&mut self, answer: Answer) {
        match &mut self.hold {
            Some(hold) => hold.asked.push(answer),
            None => self.answer(answer),
        }
    }

    pub(super) fn marked(&mut self, now: Now, by: ShardId, mark: u64) {
        let Some(hold) = &mut self.hold else { return };
        if let Some(answered) = hold.answered.get_mut(usize::from(by.0)) {
            *answered = mark.max(*answered);
        }
        self.let_out(now);
    }

    pub(super) fn copied(&mut self, now: Now, batch: u64) {
        let Some(hold) = &mut self.hold else { return };
        hold.copied = batch.max(hold.copied);
        if let Some(tracer) = self.broker.tracer_mut() {
            tracer.copied(now, batch);
        }
        self.let_out(now);
    }

    /// Begins to make copies of everything.
    pub(super) fn copy(&mut self, attempt: u32) {
        let hold = self.hold.get_or_insert_with(|| Box::new(Hold::new(self.place.shards, self.last_batch)));
        hold.attempt = attempt;
        if self.journal.is_none() {
            self.journal = Some(Box::default());
            self.broker.keep_journal();
        } else {
            hold.is_filling = true;
            self.broker.begin_checkpoint();
        }
        self.write_all_heard();
        self.broker.hold_outboxes(true);
        self.copy_more();
    }

    pub(super) fn copy_more(&mut self) {
        let Some(hold) = &mut self.hold else { return };
        if hold.is_filling {
            hold.is_filling = !self.broker.checkpoint(COPY_BYTES);
        }
    }

    /// Makes no copies any more; nothing waits.
    pub(super) fn copy_nothing(&mut self, now: Now) {
        self.make_batch();
        let Some(hold) = &mut self.hold else { return };
        hold.copied = u64::MAX;
        hold.answered.fill(u64::MAX);
        self.end_turn(now);
        self.last_batch = self.hold.take().map_or(0, |hold| hold.batch);
        self.broker.hold_outboxes(false);
        if !self.writes_journal {
            self.journal = None;
            self.broker.drop_journal();
        }
    }
}
