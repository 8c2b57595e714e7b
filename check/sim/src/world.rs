//! The world: hosts, network, clients and the loop that lets time pass.

use sedge_base::{Duration, Instant, Now, Rng, Timestamp};
use sedge_mqtt::Version;

use crate::client::Client;
use crate::disk::Disk;
use crate::host::Host;
use crate::invariant::{agreement, bounded, kept, not_lost, once, order, protocol, shares};
use crate::network::Network;
use crate::oracle::{Excused, Oracle};
use crate::schedule::{Event, Schedule, delay};
use crate::trace::{Trace, Tracing};
use crate::{Options, Report, Sabotage, Violation};

mod clients;
mod disks;
mod drains;
mod faults;
mod hosts;
mod owners;
mod wires;

/// Wall clock at the start of every run.
const EPOCH_MILLIS: u64 = 1_700_000_000_000;

/// How long the cluster may take to agree once everything is healed.
const LIVENESS: Duration = Duration::from_mins(1);

/// How long everything has to stay calm before it is believed.
const CALM: Duration = Duration::from_secs(5);

/// Everything that is simulated.
#[derive(Debug)]
pub(crate) struct World {
    options: Options,
    now: Instant,
    schedule: Schedule,
    network: Network,
    hosts: Vec<Host>,
    clients: Vec<Client>,
    oracle: Oracle,
    trace: Trace,
    /// Whether faults are over and clients only come back and listen.
    calm: bool,
    /// Randomness by concern, so that one more draw in one place does not shift all others.
    host_rng: Rng,
    net_rng: Rng,
    client_rng: Rng,
    fault_rng: Rng,
    drain_rng: Rng,
    disk_rng: Rng,
    turn_rng: Rng,
    /// For each host by how many milliseconds its wall clock is ahead, and how fast it is, in ten-thousandths.
    drifts: Vec<(u64, u64)>,
    /// For each host by how many milliseconds its time was corrected since; kept over restarts.
    corrections: Vec<i64>,
    /// The disk of each host, if they have any.
    disks: Vec<Disk>,
    /// Whether the cluster has formed once.
    formed: bool,
    excused: Excused,
}

/// Runs `options` from beginning to end.
pub fn run(options: Options, tracing: Tracing) -> Report {
    let mut world = World::new(options, tracing);
    let violations = world.run();
    Report {
        excused: world.excused,
        trace: world.trace.hash(),
        events: world.trace.events(),
        publications: world.oracle.publications.len(),
        deliveries: world.oracle.deliveries.values().map(Vec::len).sum(),
        options: world.options,
        violations,
    }
}

impl World {
    fn new(options: Options, tracing: Tracing) -> Self {
        let mut rng = Rng::new(options.seed);
        let mut host_rng = rng.split(2);
        let hosts = (0..options.nodes)
            .map(|index| Host::start(index, 0, &options, &mut host_rng.split(index as u64), None))
            .collect();
        let mut client_rng = rng.split(3);
        let all = options.clients + options.workers;
        let clients = (0..all)
            .map(|index| {
                let version = if client_rng.chance(1, 2) { Version::V5 } else { Version::V311 };
                let stays = index >= options.clients && !options.clean_workers;
                let persistent = client_rng.chance(2, 3) || stays;
                let mut client = Client::new(index, version, persistent, client_rng.index(options.nodes));
                client.expiry = options.expiry;
                client
            })
            .collect();
        let mut drift_rng = Rng::new(options.seed).split(12);
        let most = u64::try_from(options.drift.as_millis()).unwrap_or(u64::MAX);
        let drifts =
            (0..options.nodes).map(|_| (drift_rng.below(most + 1), drift_rng.below(if most > 0 { 20 } else { 1 })));
        let drifts = drifts.collect();
        let workers = (options.clients..all).collect();
        let oracle = Oracle {
            workers,
            workers_end: options.clean_workers,
            expiry: options.expiry,
            has_partitions: options.partitions,
            ..Oracle::default()
        };
        Self {
            now: Instant::ZERO,
            schedule: Schedule::default(),
            network: Network::default(),
            hosts,
            clients,
            oracle,
            trace: Trace::new(tracing),
            calm: false,
            drifts,
            corrections: vec![0; options.nodes],
            disks: if options.disks { vec![Disk::default(); options.nodes] } else { Vec::new() },
            host_rng,
            net_rng: rng.split(4),
            client_rng,
            fault_rng: rng.split(5),
            drain_rng: rng.split(6),
            disk_rng: Rng::new(options.seed).split(16),
            turn_rng: Rng::new(options.seed).split(19),
            formed: false,
            excused: Excused::default(),
            options,
        }
    }

    /// Both clocks of a host.
    fn clocks(&self, host: usize) -> Now {
        let (ahead, fast) = self.drifts.get(host).copied().unwrap_or_default();
        let millis = self.now.as_nanos() / 1_000_000;
        let corrected = self.corrections.get(host).copied().unwrap_or_default();
        let wall = (EPOCH_MILLIS + millis + ahead + millis * fast / 10_000).saturating_add_signed(corrected);
        Now { instant: self.now, wall: Timestamp::from_millis(wall) }
    }

    fn run(&mut self) -> Vec<Violation> {
        for host in 0..self.hosts.len() {
            self.wake_all(host);
        }
        for client in 0..self.clients.len() {
            let first = self.now + Duration::from_millis(500) + delay(&mut self.client_rng, self.options.pause);
            self.schedule.at(first, Event::Act { client });
        }
        self.schedule.at(self.now + Duration::from_secs(2), Event::Fault);
        if self.options.drains {
            self.schedule.at(self.now + Duration::from_secs(2), Event::Drain);
        }
        let mut violations = Vec::new();
        self.pass_until(Instant::ZERO + self.options.faults_for, &mut violations);
        self.heal_for_good();
        self.liveness(&mut violations);
        let ((twice, repeated), (wrong, disordered)) = (once::check(&self.oracle), order::check(&self.oracle));
        self.excused = repeated.and(disordered);
        for (name, found) in
            [(once::NAME, twice), (order::NAME, wrong), (protocol::NAME, protocol::check(&self.oracle))]
        {
            violations.extend(found.into_iter().map(|detail| Violation { invariant: name, detail }));
        }
        if !self.options.partitions && !self.options.crashes && !self.options.freezes && !self.options.site {
            let twice = agreement::never_two_owners(&self.oracle);
            violations.extend(twice.into_iter().map(|detail| Violation { invariant: agreement::NAME, detail }));
        }
        if self.owes_everything() {
            for (name, found) in
                [(not_lost::NAME, not_lost::check(&self.oracle)), (shares::NAME, shares::check(&self.oracle))]
            {
                violations.extend(found.into_iter().map(|detail| Violation { invariant: name, detail }));
            }
        }
        // On the other side of a partition a client gets a session of its own.
        if self.owes_everything() && !self.options.parts {
            let gone = kept::check(&self.oracle);
            violations.extend(gone.into_iter().map(|detail| Violation { invariant: kept::NAME, detail }));
        }
        violations
    }

    /// Whether this run's faults leave no excuse for losing an acknowledged message.
    fn owes_everything(&self) -> bool {
        !self.oracle.disturbed && self.options.queue_limit > 1_000
    }

    fn pass_until(&mut self, end: Instant, violations: &mut Vec<Violation>) {
        let mut next_look = self.now;
        while self.now < end && violations.is_empty() {
            let Some((when, event)) = self.schedule.pop() else { return };
            self.now = when;
            self.event(event);
            if self.now >= next_look {
                next_look = self.now + Duration::from_millis(100);
                self.look(violations);
            }
        }
    }

    fn look(&mut self, violations: &mut Vec<Violation>) {
        self.note_owners();
        if self.network.is_whole() && agreement::members(&self.hosts).is_empty() {
            self.oracle.joined(self.now);
        }
        let over = bounded::check(&self.hosts, self.options.queue_limit);
        violations.extend(over.into_iter().map(|detail| Violation { invariant: bounded::NAME, detail }));
        let all = self.hosts.len();
        let complete =
            self.hosts.iter().all(|host| host.up && host.node.status().members.len() == all && host.node.is_ready());
        if complete {
            self.formed = true;
        } else if self.formed {
            self.oracle.disturbed |= !(self.options.spaced || self.options.parts);
        } else if !self.oracle.publications.is_empty() {
            // Before the cluster has formed a publisher's node may not know of a subscriber's.
            self.oracle.disturbed |= self.hosts.len() > 1;
        }
    }

    fn liveness(&mut self, violations: &mut Vec<Violation>) {
        self.calm = true;
        let deadline = self.now + LIVENESS;
        let mut last = vec!["nothing was checked".to_owned()];
        let mut calm_since = None;
        while self.now < deadline && violations.is_empty() {
            let next = self.now + Duration::from_millis(250);
            self.pass_until(next, violations);
            last = agreement::check(&self.hosts);
            let busy =
                self.clients.iter().filter(|client| !client.is_idle()).map(|client| format!("{} is busy", client.id()));
            last.extend(busy);
            if last.is_empty() {
                if self.now - *calm_since.get_or_insert(self.now) >= CALM {
                    return;
                }
            } else {
                calm_since = None;
            }
        }
        violations.extend(last.into_iter().map(|detail| Violation { invariant: agreement::NAME, detail }));
    }

    fn event(&mut self, event: Event) {
        if let Some(until) = self.waits_until(&event) {
            return self.schedule.at(until, event);
        }
        match event {
            Event::ToShard { host, life, shard, mail } => self.mail_to_shard(host, life, shard, mail),
            Event::ToNode { host, life, from, mail } => self.mail_to_node(host, life, from, mail),
            Event::Timer { host, life, actor } => self.timer(host, life, actor),
            Event::TurnEnds { host, life } => self.turn_ends(host, life),
            Event::Datagram { from, to, bytes } => self.datagram(from, to, bytes),
            Event::Dialled { host, life, link, to } => self.dialled(host, life, link, to),
            Event::Arrive { wire, side, bytes } => self.arrive(wire, side, bytes),
            Event::Unstalled { wire, side } => self.unstalled(wire, side),
            Event::Broken { wire, side } => self.broken(wire, side),
            Event::Act { client } => self.act(client),
            Event::Fault => self.fault(),
            Event::Heal => self.heal(),
            Event::Rejoin { a, b } => self.rejoin(a, b),
            Event::Drain => self.drain(),
            Event::Stopped { host, life } => self.stopped(host, life),
            Event::Restart { host } => self.restart(host),
            Event::Resume { host, life, stood } => self.resume(host, life, stood),
            Event::PowerCut => self.cut_power_again(),
            Event::Mark { host, life, from, to, mark } => self.mark(host, life, (from, to), mark),
            Event::Synced { host, life, shard, sequence } => self.synced(host, life, shard, sequence),
            Event::DiskFails { host, life } => self.disk_fails(host, life),
        }
    }

    /// Whether a host stands still.
    fn stands_still(&self, host: usize) -> bool {
        self.hosts[host].still_until > self.now
    }

    /// Until when an event has to wait because a host stands still.
    fn waits_until(&self, event: &Event) -> Option<Instant> {
        let at = |host: &usize| Some(self.hosts[*host].still_until).filter(|until| *until > self.now);
        match event {
            Event::ToShard { host, .. }
            | Event::ToNode { host, .. }
            | Event::Timer { host, .. }
            | Event::TurnEnds { host, .. }
            | Event::Mark { host, .. }
            | Event::Synced { host, .. } => at(host),
            Event::Datagram { to, .. } => at(to),
            Event::Dialled { host, to, .. } => at(host).max(at(to)),
            Event::Arrive { wire, side, .. } | Event::Unstalled { wire, side } | Event::Broken { wire, side } => {
                at(&self.network.wires.get(wire)?.ends[*side].host()?)
            }
            Event::Act { .. }
            | Event::Fault
            | Event::Heal
            | Event::Rejoin { .. }
            | Event::Drain
            | Event::Stopped { .. }
            | Event::Restart { .. }
            | Event::Resume { .. }
            | Event::DiskFails { .. }
            | Event::PowerCut => None,
        }
    }

    /// Draws whether a planted bug strikes now.
    fn sabotage(&mut self, kind: Sabotage) -> bool {
        self.options.sabotage == kind && self.fault_rng.chance(1, 50)
    }
}
