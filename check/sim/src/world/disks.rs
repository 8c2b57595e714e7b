//! Disks that take their time: nothing that rests on a batch leaves before the medium has the batch.

use sedge_base::{ConnId, Duration, ShardId};
use sedge_cluster::LinkId;
use sedge_cluster::durable::{Allowance, Held, haste_to_node, haste_to_shard, is_publication};

use super::World;
use crate::Sabotage;
use crate::disk::{Mail, Thread};
use crate::schedule::{Actor, Event, delay};

impl World {
    /// The thread of a machine: the node runs on that of the first shard.
    pub(super) const fn thread_of(actor: Actor) -> ShardId {
        match actor {
            Actor::Node => ShardId(0),
            Actor::Shard(shard) => shard,
        }
    }

    fn thread(&mut self, host: usize, thread: ShardId) -> Option<&mut Thread> {
        self.hosts[host].threads.get_mut(usize::from(thread.0))
    }

    /// Whether what leaves a machine of this host waits for its journal.
    pub(super) fn waits_for_disk(&self, host: usize) -> bool {
        !self.hosts[host].threads.is_empty()
    }

    /// A client has something to read.
    pub(super) fn touch_conn(&mut self, host: usize, shard: ShardId, conn: ConnId) {
        if let Some(thread) = self.thread(host, shard) {
            thread.conns.push(conn);
        }
    }

    /// A link has something to write.
    pub(super) fn touch_link(&mut self, host: usize, link: LinkId) {
        if let Some(thread) = self.thread(host, ShardId(0))
            && !thread.links.contains(&link)
        {
            thread.links.push(link);
        }
    }

    /// Mail of one thread to another one.
    pub(super) fn put_mail(&mut self, host: usize, from: Actor, to: ShardId, mail: Mail) {
        let haste = match &mail {
            Mail::Shard(mail) => haste_to_shard(mail),
            Mail::Node(_, mail) => haste_to_node(mail),
            Mail::Mark(..) => unreachable!("marks are put behind mail"),
        };
        if let Some(thread) = self.thread(host, Self::thread_of(from)) {
            thread.mail.put(to, mail, |_| haste).unwrap_or_else(|mail| unreachable!("no thread for {mail:?}"));
        }
    }

    fn deliver(&mut self, host: usize, from: ShardId, to: ShardId, mail: Mail) {
        let life = self.hosts[host].life;
        let when = self.now + delay(&mut self.host_rng, self.options.mail_delay);
        let path = (host, Actor::Shard(from), Actor::Shard(to));
        let event = match mail {
            Mail::Shard(mail) => Event::ToShard { host, life, shard: to, mail },
            Mail::Node(from, mail) => Event::ToNode { host, life, from, mail },
            Mail::Mark(from, mark) => Event::Mark { host, life, from, to, mark },
        };
        self.schedule.mail(when, path, event);
    }

    fn deliver_all(&mut self, host: usize, from: ShardId, batches: Vec<Vec<Mail>>) {
        for (to, batch) in (0..).zip(batches) {
            for mail in batch {
                self.deliver(host, from, ShardId(to), mail);
            }
        }
    }

    /// A mark has come behind the publications of another thread.
    pub(super) fn mark(&mut self, host: usize, life: u64, (from, to): (ShardId, ShardId), mark: u64) {
        if !self.alive(host, life) {
            return;
        }
        if let Some(thread) = self.thread(host, to) {
            thread.marks.push((from, mark));
        }
        self.commit(host, to);
    }

    /// Ends a turn of a thread, whose changes are written.
    pub(super) fn end_turn(&mut self, host: usize, shard: ShardId) {
        let at = usize::from(shard.0);
        let sequence = self.disks[host].logs[at].sequence();
        let Some(thread) = self.thread(host, shard) else { return };
        for (from, mark) in core::mem::take(&mut thread.marks) {
            thread.gate.note_mark(sequence, from, mark);
        }
        let free: Vec<_> = thread.mail.free().iter_mut().map(core::mem::take).collect();
        if thread.mail.has_to_wait() {
            let publishes = |mail: &Mail| matches!(mail, Mail::Shard(mail) if is_publication(mail));
            let gate = &mut thread.gate;
            let letters = thread.mail.take(sequence, publishes, |to| Mail::Mark(shard, gate.next_mark(to)));
            thread.gate.hold_letters(sequence, letters);
        }
        self.deliver_all(host, shard, free);
        let held = self.held_bytes(host, shard);
        let Some(thread) = self.thread(host, shard) else { return };
        thread.gate.end_turn(sequence, held.into_iter());
        if self.options.sabotage == Sabotage::BelieveKept {
            self.believe_kept(host, shard);
        }
        self.sync(host, shard);
        self.release(host, shard);
    }

    /// The bytes of this turn that wait for the journal.
    fn held_bytes(&mut self, host: usize, shard: ShardId) -> Vec<Held> {
        let at = usize::from(shard.0);
        let mut held = Vec::new();
        let conns = self.thread(host, shard).map(|thread| core::mem::take(&mut thread.conns));
        for conn in conns.into_iter().flatten() {
            let machine = &mut self.hosts[host].shards[at];
            let Some(waiting) = machine.outbox(conn).map(|outbox| outbox.len() as u64) else { continue };
            let depends = machine.take_dependence(conn);
            let Some(thread) = self.thread(host, shard) else { continue };
            let (written, allowance) = thread.written.entry(conn).or_insert((0, Allowance::NONE));
            let end = *written + waiting;
            if depends {
                allowance.wait(end);
                held.push(Held::Client(conn, end));
            } else if allowance.pass(end) {
                self.transmit_conn(host, conn);
            }
        }
        let links = self.thread(host, shard).map(|thread| core::mem::take(&mut thread.links));
        for link in links.into_iter().flatten() {
            let waiting = self.hosts[host].node.link_outbox(link).map(|outbox| outbox.len() as u64);
            let written = self.thread(host, shard).map(|thread| thread.written_links.entry(link).or_default().0);
            held.extend(waiting.zip(written).map(|(waiting, written)| Held::Link(link, written + waiting)));
        }
        held
    }

    fn transmit_conn(&mut self, host: usize, conn: ConnId) {
        if let Some(wire) = self.hosts[host].conns.get(&conn).copied() {
            self.transmit_from(host, wire);
        }
    }

    /// The planted bug: a written batch counts as one that the medium has, and the medium has it later.
    fn believe_kept(&mut self, host: usize, shard: ShardId) {
        let all = self.disks[host].logs[usize::from(shard.0)].sequence();
        self.let_go(host, shard, all);
    }

    /// Carries what is written to the medium, unless that is under way.
    fn sync(&mut self, host: usize, shard: ShardId) {
        let disk = &self.disks[host];
        let log = &disk.logs[usize::from(shard.0)];
        let (sequence, is_new) = (log.sequence(), log.sequence() > log.kept());
        let (stalls_until, longest) = (disk.stalls_until, self.options.sync_delay);
        let life = self.hosts[host].life;
        let Some(thread) = self.thread(host, shard).filter(|thread| is_new && !thread.syncs) else { return };
        thread.syncs = true;
        let when = stalls_until.max(self.now) + delay(&mut self.disk_rng, longest);
        self.schedule.at(when, Event::Synced { host, life, shard, sequence });
    }

    /// The medium has the batches up to this one.
    pub(super) fn synced(&mut self, host: usize, life: u64, shard: ShardId, sequence: u64) {
        if !self.alive(host, life) {
            return;
        }
        self.trace.note(self.now, format_args!("host {host} shard {} has batch {sequence} on its medium", shard.0));
        self.disks[host].logs[usize::from(shard.0)].keep(sequence);
        if let Some(thread) = self.thread(host, shard) {
            thread.syncs = false;
        }
        self.sync(host, shard);
        self.release(host, shard);
    }

    /// Lets go what the medium has by now.
    fn release(&mut self, host: usize, shard: ShardId) {
        let kept = self.disks[host].logs[usize::from(shard.0)].kept();
        self.let_go(host, shard, kept);
    }

    fn let_go(&mut self, host: usize, shard: ShardId, kept: u64) {
        let Some(thread) = self.thread(host, shard) else { return };
        thread.mail.note_kept(kept);
        while let Some(batches) = self.thread(host, shard).and_then(|thread| thread.gate.next_letters(kept)) {
            self.deliver_all(host, shard, batches);
        }
        let mut senders = Vec::new();
        while let Some((from, mark)) = self.thread(host, shard).and_then(|thread| thread.gate.next_answer(kept)) {
            if let Some(sender) = self.thread(host, from) {
                sender.answered[usize::from(shard.0)] = mark;
            }
            senders.push(from);
        }
        loop {
            let Some(thread) = self.thread(host, shard) else { return };
            let answered = &thread.answered;
            match thread.gate.next_held(kept, |thread| answered[thread]) {
                Some(Held::Client(conn, end)) => {
                    if let Some((_, allowance)) = thread.written.get_mut(&conn) {
                        allowance.allow(end);
                    }
                    self.transmit_conn(host, conn);
                }
                Some(Held::Link(link, end)) => {
                    thread.written_links.entry(link).or_default().1 = end;
                    if let Some(wire) = self.hosts[host].links.get(&link).copied() {
                        self.transmit_from(host, wire);
                    }
                }
                None => break,
            }
        }
        for sender in senders {
            self.release(host, sender);
        }
    }

    /// A disk stalls while no other one does; some disks fail after that, and their process ends.
    pub(super) fn stall_disk(&mut self) {
        let host = self.fault_rng.index(self.hosts.len());
        if !self.hosts[host].up || self.disks.iter().any(|disk| disk.stalls_until > self.now) {
            return;
        }
        let until = self.now + Duration::from_millis(50 + self.fault_rng.below(3_000));
        self.trace.note(self.now, format_args!("fault: the disk of host {host} stalls until {until}"));
        self.disks[host].stalls_until = until;
        if self.fault_rng.chance(1, 4) {
            let life = self.hosts[host].life;
            self.schedule.at(until, Event::DiskFails { host, life });
        }
    }

    /// Nothing more reaches the medium: the process ends, and starts again with what the medium has.
    pub(super) fn disk_fails(&mut self, host: usize, life: u64) {
        let all_up = self.hosts.iter().all(|host| host.up);
        if self.calm || !self.alive(host, life) || !all_up || !self.is_copied() || !self.is_undisturbed() {
            return;
        }
        self.trace.note(self.now, format_args!("fault: the disk of host {host} fails"));
        self.kill(host, false);
        let again = self.now + Duration::from_millis(100 + self.fault_rng.below(5_000));
        self.schedule.at(again, Event::Restart { host });
    }
}
