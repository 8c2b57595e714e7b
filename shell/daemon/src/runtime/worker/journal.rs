//! The journal's part of a turn: the changes of the turn are written before any effect of them leaves.

use std::io;
use std::sync::atomic::Ordering;

use sedge_base::{ConnId, Instant, ShardId};
use sedge_cluster::durable::{DurableGate, Held};
use sedge_cluster::{LinkId, NodeInput};

use super::Worker;
use crate::runtime::mailbox::{MAILBOX_LETTERS_MAX, Mailbox};
use crate::runtime::{Keeper, KeeperStats, Letter};

/// The journal, and what waits for it.
pub(super) struct Kept {
    keeper: Keeper,
    gate: DurableGate<Letter>,
    /// Connections and links with new bytes in this turn.
    clients: Vec<ConnId>,
    links: Vec<LinkId>,
    /// Marks that came in this turn.
    marks: Vec<(ShardId, u64)>,
    was_full: bool,
    was_any_full: bool,
}

impl Kept {
    pub(super) fn new(keeper: Keeper, shards: usize) -> Self {
        let (clients, links, marks) = (Vec::new(), Vec::new(), Vec::new());
        Self { keeper, gate: DurableGate::new(shards), clients, links, marks, was_full: false, was_any_full: false }
    }

    pub(super) fn stats(&self) -> KeeperStats {
        self.keeper.stats()
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.keeper.next_deadline()
    }

    pub(super) fn touch_link(&mut self, link: LinkId) {
        if !self.links.contains(&link) {
            self.links.push(link);
        }
    }
}

impl Worker {
    /// With a journal nothing leaves that was not allowed to.
    pub(super) fn gate(&mut self) {
        if self.kept.is_some() {
            self.office.note_kept(0);
            self.clients.gate();
            if let Some(hub) = &mut self.hub {
                hub.links.gate();
            }
        }
    }

    /// A client has something to read.
    pub(super) fn transmit(&mut self, conn: ConnId) {
        match &mut self.kept {
            Some(kept) => kept.clients.push(conn),
            None => self.clients.mark_dirty(conn),
        }
    }

    pub(super) fn note_mark(&mut self, from: ShardId, mark: u64) {
        if let Some(kept) = &mut self.kept {
            kept.marks.push((from, mark));
        }
    }

    /// Whether so much waits for the journal that nothing more is read.
    pub(super) fn is_choked(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.keeper.is_choked() || kept.gate.letters() >= MAILBOX_LETTERS_MAX)
    }

    /// Whether something was made after the last commit.
    pub(super) fn has_more_to_commit(&self) -> bool {
        let Some(kept) = &self.kept else { return false };
        !kept.clients.is_empty() || !kept.links.is_empty() || !self.office.is_empty() || kept.keeper.is_busy()
    }

    /// Writes the changes of this turn. Output of the turn leaves when they are kept, together with all changes before. An error is final:
    /// nothing that depends on the changes has left.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        let Some(kept) = &mut self.kept else { return Ok(()) };
        if let Some(error) = kept.keeper.failure() {
            return Err(io::Error::new(error.kind(), format!("the journal cannot be carried to the medium: {error}")));
        }
        let node = self.hub.as_mut().map(|hub| &mut hub.node);
        let written = kept.keeper.commit(self.now.instant, &mut self.shard, node);
        written.map_err(|error| io::Error::other(format!("the journal cannot be written: {error}")))?;
        let sequence = kept.keeper.sequence();
        let mut is_awaited = !kept.marks.is_empty() || self.office.has_to_wait();
        for (from, mark) in kept.marks.drain(..) {
            kept.gate.note_mark(sequence, from, mark);
        }
        self.office.post(&self.shared, &mut self.stats);
        if self.office.has_to_wait() {
            let me = self.id;
            let letters = self.office.take(sequence, |to| Letter::Mark(me, kept.gate.next_mark(to)));
            kept.gate.hold_letters(sequence, letters);
        }
        let (clients, shard, hub) = (&mut self.clients, &mut self.shard, &mut self.hub);
        let mut held = Vec::with_capacity(kept.clients.len() + kept.links.len());
        for conn in kept.clients.drain(..) {
            let (Some(client), Some(outbox)) = (clients.get_mut(conn), shard.outbox(conn)) else { continue };
            let end = client.written + outbox.len() as u64;
            if shard.take_dependence(conn) {
                clients.wait(conn, end);
                held.push(Held::Client(conn, end));
            } else {
                clients.pass(conn, end);
            }
        }
        for link in kept.links.drain(..) {
            let end = hub.as_mut().and_then(|hub| hub.end_of(link));
            held.extend(end.map(|end| Held::Link(link, end)));
        }
        is_awaited |= !held.is_empty();
        kept.gate.end_turn(sequence, held.into_iter());
        kept.keeper.carry(self.now.instant, is_awaited);
        self.tell_whether_full();
        self.release();
        Ok(())
    }

    /// Lets go what is kept by now.
    fn release(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        let (until, shared, me) = (kept.keeper.kept(), &self.shared, usize::from(self.id.0));
        self.office.note_kept(until);
        while let Some(letters) = kept.gate.next_letters(until) {
            self.office.post_taken(letters, shared, &mut self.stats);
        }
        while let Some((from, mark)) = kept.gate.next_answer(until) {
            let sender = usize::from(from.0);
            if let Some(answer) = shared.answers.get(sender).and_then(|row| row.get(me)) {
                answer.store(mark, Ordering::Release);
            }
            if let Some(mailbox) = shared.boxes.get(sender) {
                mailbox.nudge();
            }
        }
        let answered = |thread: usize| {
            let answer = shared.answers.get(me).and_then(|row| row.get(thread));
            answer.map_or(u64::MAX, |answer| answer.load(Ordering::Acquire))
        };
        while let Some(held) = kept.gate.next_held(until, answered) {
            match held {
                Held::Client(conn, end) => self.clients.allow(conn, end),
                Held::Link(link, end) => {
                    if let Some(hub) = &mut self.hub {
                        hub.links.allow(link, end);
                    }
                }
            }
        }
    }

    /// One journal without room is enough for all threads to refuse what they could not keep.
    fn tell_whether_full(&mut self) {
        let Some(kept) = &mut self.kept else { return };
        let full = kept.keeper.is_full();
        if full && !kept.was_full {
            self.shared.full_journals.fetch_add(1, Ordering::AcqRel);
        } else if !full && kept.was_full {
            self.shared.full_journals.fetch_sub(1, Ordering::AcqRel);
        }
        if full != kept.was_full {
            // Those that sleep would go on as they did.
            self.shared.boxes.iter().for_each(Mailbox::nudge);
        }
        kept.was_full = full;
        let any = self.shared.full_journals.load(Ordering::Acquire) > 0;
        self.shard.set_full(any);
        if let Some(hub) = &mut self.hub
            && any != kept.was_any_full
        {
            hub.node.handle(self.now, NodeInput::Full(any));
        }
        kept.was_any_full = any;
    }

    /// The last turn is over: everything is carried to the medium, then posted.
    pub(super) fn close_journal(&mut self) -> io::Result<()> {
        self.commit()?;
        if let Some(kept) = &mut self.kept {
            kept.keeper.close();
        }
        self.release();
        Ok(())
    }
}
