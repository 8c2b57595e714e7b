//! Causes faults, as far as the run allows them, and ends them again.

use sedge_base::{Duration, ShardId};
use sedge_cluster::{NodeInput, STANDSTILL, ShardInput};

use super::World;
use crate::host::Host;
use crate::schedule::Event;

impl World {
    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let is_late = self.options.sync_delay > Duration::ZERO;
        if is_late && !(self.is_copied() && self.is_undisturbed()) {
            // With disks that take their time, moments at which nothing moves are rare.
            self.schedule.at(self.now + Duration::from_millis(20), Event::Fault);
            return;
        }
        let next = self.now + Duration::from_millis(200 + self.fault_rng.below(2_000));
        self.schedule.at(next, Event::Fault);
        if self.options.is_swarm() && self.fault_rng.chance(1, 2) {
            return if self.fault_rng.chance(1, 2) { self.pause() } else { self.cut_way() };
        }
        if is_late && self.fault_rng.chance(1, 3) {
            return self.stall_disk();
        }
        if self.options.freezes {
            return self.freeze();
        }
        if self.options.site {
            return self.cut_power();
        }
        match self.fault_rng.below(3) {
            0 if self.options.link_cuts => self.cut_link(),
            1 if self.options.partitions && self.hosts.len() > 1 => self.partition(),
            2 if self.options.crashes => self.crash(),
            _ => {}
        }
    }

    /// A host stands still, for less than it takes to be declared dead.
    fn pause(&mut self) {
        let host = self.fault_rng.index(self.hosts.len());
        if !self.options.pauses || !self.hosts[host].up || !self.is_undisturbed() {
            return;
        }
        let duration = Duration::from_millis(10 + self.fault_rng.below(700));
        self.stand_still(host, duration);
    }

    /// A host stands still for so long that the others may declare it dead and take its sessions over.
    fn freeze(&mut self) {
        let host = self.fault_rng.index(self.hosts.len());
        let seconds = *self.fault_rng.pick(&[1, 3, 6, 20]).unwrap_or(&1);
        if self.hosts[host].up && self.is_copied() && self.is_undisturbed() {
            let duration = Duration::from_millis(1_000 * seconds + self.fault_rng.below(1_000));
            self.stand_still(host, duration);
        }
    }

    fn stand_still(&mut self, host: usize, duration: Duration) {
        let until = self.now + duration;
        self.trace.note(self.now, format_args!("fault: host {host} stands still until {until}"));
        self.hosts[host].still_until = until;
        let life = self.hosts[host].life;
        self.schedule.at(until, Event::Resume { host, life, stood: duration });
    }

    /// A host that stood still goes on. As in the daemon, its machines hear of a long standstill before anything else; and it writes as much as
    /// it can.
    pub(super) fn resume(&mut self, host: usize, life: u64, stood: Duration) {
        if !self.hosts[host].up || self.hosts[host].life != life {
            return;
        }
        if stood > STANDSTILL && self.hosts.len() > 1 {
            for shard in 0..self.options.shards {
                self.shard_input(host, ShardId(shard), ShardInput::StoodStill);
            }
            self.node_input(host, NodeInput::StoodStill);
        }
        for (wire, side) in self.network.of_host(host) {
            self.pump_and_drain(wire, side);
        }
    }

    /// The power of the whole site fails; it comes back to all hosts at once, to one after the other, or late to one of them.
    fn cut_power(&mut self) {
        let all_up = self.hosts.iter().all(|host| host.up);
        if !all_up || !self.is_copied() || !self.is_undisturbed() {
            return;
        }
        let schedule = self.fault_rng.below(5);
        self.trace.note(self.now, format_args!("fault: the power fails, schedule {schedule}"));
        let first = Duration::from_millis(100 + self.fault_rng.below(3_000));
        let late = self.fault_rng.index(self.hosts.len());
        self.kill_all();
        for host in 0..self.hosts.len() {
            let more = match schedule {
                1 => Duration::from_millis(self.fault_rng.below(3_000)),
                2 if host == late => Duration::from_secs(30),
                // It is put right when all faults are over.
                3 if host == late && self.hosts.len() > 2 => continue,
                _ => Duration::ZERO,
            };
            self.schedule.at(self.now + first + more, Event::Restart { host });
        }
        if schedule == 4 {
            let again = first + Duration::from_millis(50 + self.fault_rng.below(2_000));
            self.schedule.at(self.now + again, Event::PowerCut);
        }
    }

    /// The power fails once more, whatever the hosts do.
    pub(super) fn cut_power_again(&mut self) {
        if self.calm {
            return;
        }
        self.trace.note(self.now, format_args!("fault: the power fails again"));
        self.kill_all();
        for host in 0..self.hosts.len() {
            let soon = Duration::from_millis(100 + self.fault_rng.below(500));
            self.schedule.at(self.now + soon, Event::Restart { host });
        }
    }

    /// Every process ends; clients that were connected hear of it, or do not.
    fn kill_all(&mut self) {
        let silent = self.fault_rng.chance(1, 2);
        for host in 0..self.hosts.len() {
            self.hosts[host].up = false;
        }
        for host in 0..self.hosts.len() {
            self.kill(host, silent);
        }
    }

    /// A process ends. A disk that takes its time loses what the medium does not have.
    pub(super) fn kill(&mut self, host: usize, silent: bool) {
        let status = self.hosts[host].node.status();
        if status.copies < status.copies_wanted && self.disks.is_empty() {
            self.oracle.dies_alone(self.now);
        }
        self.hosts[host].up = false;
        if self.waits_for_disk(host) {
            let lost = self.disks[host].lose_power(&mut self.disk_rng);
            self.trace.note(self.now, format_args!("the disk of host {host} loses batches: {lost:?}"));
        }
        for (wire, side) in self.network.of_host(host) {
            self.close_end(wire, side, !silent);
        }
    }

    /// Nothing comes from one host to another for a while; others reach both.
    fn cut_way(&mut self) {
        let (from, to) = (self.fault_rng.index(self.hosts.len()), self.fault_rng.index(self.hosts.len()));
        if !self.options.one_way
            || from == to
            || !self.is_undisturbed()
            || self.hosts.iter().filter(|host| host.up).count() < 3
        {
            return;
        }
        self.trace.note(self.now, format_args!("fault: nothing comes from host {from} to {to}"));
        self.network.cut_way(from, to);
        let heal = self.now + Duration::from_millis(100 + self.fault_rng.below(3_000));
        self.schedule.at(heal, Event::Heal);
    }

    /// Whether all hosts reach each other, and none stands still.
    pub(super) fn is_undisturbed(&self) -> bool {
        self.network.is_whole() && (0..self.hosts.len()).all(|host| !self.stands_still(host))
    }

    fn cut_link(&mut self) {
        let links = self.network.links();
        let Some(wire) = self.fault_rng.pick(&links).copied() else { return };
        self.trace.note(self.now, format_args!("fault: link {} is reset", wire.0));
        // Both ends hear of a reset that neither has asked for; bytes under way are lost.
        for side in 0..2 {
            self.schedule.at(self.now, Event::Broken { wire, side });
        }
    }

    fn partition(&mut self) {
        if self.options.parts {
            self.part();
        } else {
            self.cut_off();
        }
        self.oracle.cut(self.now);
        let heal = self.now + Duration::from_millis(100 + self.fault_rng.below(5_000));
        self.schedule.at(heal, Event::Heal);
    }

    /// Two sides, none of which is empty.
    fn part(&mut self) {
        let mut hosts: Vec<usize> = (0..self.hosts.len()).collect();
        self.fault_rng.shuffle(&mut hosts);
        let (left, right) = hosts.split_at(1 + self.fault_rng.index(hosts.len() - 1));
        self.trace.note(self.now, format_args!("fault: hosts {left:?} are parted from {right:?}"));
        for host in left {
            for other in right {
                self.network.cut(*host, *other);
            }
        }
    }

    /// One host cannot reach most of the others.
    fn cut_off(&mut self) {
        let island = self.fault_rng.index(self.hosts.len());
        let others: Vec<usize> = (0..self.hosts.len()).filter(|host| *host != island).collect();
        self.trace.note(self.now, format_args!("fault: host {island} is cut off"));
        for other in others {
            if self.fault_rng.chance(3, 4) {
                self.network.cut(island, other);
            }
        }
        self.oracle.disturbed = true;
    }

    /// All hosts reach each other again, at once or, where two sides find each other, one pair after the other.
    pub(super) fn heal(&mut self) {
        if self.options.parts && !self.calm {
            let slowest = *self.fault_rng.pick(&[1, 50, 700]).unwrap_or(&1);
            for (a, b) in self.network.cuts() {
                let when = self.now + Duration::from_millis(self.fault_rng.below(slowest));
                self.schedule.at(when, Event::Rejoin { a, b });
            }
            return;
        }
        self.trace.note(self.now, format_args!("healed"));
        self.network.heal();
        self.resume_wires();
    }

    /// Two hosts reach each other again.
    pub(super) fn rejoin(&mut self, a: usize, b: usize) {
        self.trace.note(self.now, format_args!("hosts {a} and {b} reach each other"));
        self.network.join(a, b);
        self.resume_wires();
    }

    fn crash(&mut self) {
        let up: Vec<usize> = (0..self.hosts.len()).filter(|host| self.hosts[*host].up).collect();
        let Some(host) = self.fault_rng.pick(&up).copied() else { return };
        if up.len() == 1 || (self.options.spaced && !(self.is_copied() && self.is_undisturbed())) {
            return;
        }
        let silent = self.fault_rng.chance(1, 2);
        self.trace.note(self.now, format_args!("fault: host {host} is killed, silently: {silent}"));
        self.oracle.disturbed |= !self.options.spaced;
        self.kill(host, silent);
        let again = self.now + Duration::from_millis(100 + self.fault_rng.below(5_000));
        self.schedule.at(again, Event::Restart { host });
    }

    /// Whether all data of nodes is at as many nodes as it should be, no takeover is to come, and every node knows which nodes are dead.
    pub(super) fn is_copied(&self) -> bool {
        let (may_move, up) = (self.options.moving, self.hosts.iter().filter(|host| host.up).count());
        self.formed
            && self.hosts.iter().filter(|host| host.up).all(|host| {
                let status = host.node.status();
                let is_settled = status.orphaned == 0 && (may_move || status.moving == 0);
                is_settled && status.copies == status.copies_wanted && status.copies > 1 && status.members.len() == up
            })
    }

    pub(super) fn restart(&mut self, host: usize) {
        if self.hosts[host].up {
            return;
        }
        self.trace.note(self.now, format_args!("host {host} starts again"));
        let life = self.hosts[host].life + 1;
        let mut rng = self.host_rng.split(1_000 + life);
        let now = self.clocks(host);
        let disk = self.disks.get(host).map(|disk| (disk, now));
        self.hosts[host] = Host::start(host, life, &self.options, &mut rng, disk);
        self.wake_all(host);
    }

    /// The first phase is over.
    pub(super) fn heal_for_good(&mut self) {
        self.calm = true;
        self.heal();
        for host in 0..self.hosts.len() {
            self.restart(host);
            if !self.stands_still(host) {
                self.serve_on(host);
            }
        }
    }
}
