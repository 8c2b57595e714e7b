//! Makes things go wrong, within what the run allows, and puts them right again.

use sedge_base::{Duration, Instant};

use super::World;
use crate::host::Host;
use crate::schedule::Event;

impl World {
    pub(super) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let next = self.now + Duration::from_millis(200 + self.fault_rng.below(2_000));
        self.schedule.at(next, Event::Fault);
        if self.options.is_swarm() && self.fault_rng.chance(1, 2) {
            return if self.fault_rng.chance(1, 2) { self.pause() } else { self.cut_way() };
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
        let until = self.now + Duration::from_millis(10 + self.fault_rng.below(700));
        self.trace.note(self.now, &format!("fault: host {host} stands still until {until}"));
        self.hosts[host].still_until = until;
        let life = self.hosts[host].life;
        self.schedule.at(until, Event::Resume { host, life });
    }

    /// A host that stood still goes on: it writes what it can.
    pub(super) fn resume(&mut self, host: usize, life: u64) {
        if self.hosts[host].up && self.hosts[host].life == life {
            for (wire, side) in self.network.of_host(host) {
                self.pump_and_drain(wire, side);
            }
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
        self.trace.note(self.now, &format!("fault: nothing comes from host {from} to {to}"));
        self.network.cut_way(from, to);
        let heal = self.now + Duration::from_millis(100 + self.fault_rng.below(3_000));
        self.schedule.at(heal, Event::Heal);
    }

    /// Whether all hosts reach each other, and none stands still.
    fn is_undisturbed(&self) -> bool {
        self.network.is_whole() && (0..self.hosts.len()).all(|host| !self.stands_still(host))
    }

    fn cut_link(&mut self) {
        let links = self.network.links();
        let Some(wire) = self.fault_rng.pick(&links).copied() else { return };
        self.trace.note(self.now, &format!("fault: link {} is reset", wire.0));
        // Both ends hear of a reset that neither has asked for; what was under way is lost.
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
        self.trace.note(self.now, &format!("fault: hosts {left:?} are parted from {right:?}"));
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
        self.trace.note(self.now, &format!("fault: host {island} is cut off"));
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
        self.trace.note(self.now, "healed");
        self.network.heal();
        self.resume_wires();
    }

    /// Two hosts reach each other again.
    pub(super) fn rejoin(&mut self, a: usize, b: usize) {
        self.trace.note(self.now, &format!("hosts {a} and {b} reach each other"));
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
        self.trace.note(self.now, &format!("fault: host {host} is killed, silently: {silent}"));
        self.oracle.disturbed |= !self.options.spaced;
        self.hosts[host].up = false;
        for (wire, side) in self.network.of_host(host) {
            self.close_end(wire, side, !silent);
        }
        let again = self.now + Duration::from_millis(100 + self.fault_rng.below(5_000));
        self.schedule.at(again, Event::Restart { host });
    }

    /// Whether all that nodes hold is at as many nodes as it should be, nobody is about to take anything over, and everybody knows who is dead.
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
        self.trace.note(self.now, &format!("host {host} starts again"));
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
        for host in &mut self.hosts {
            host.still_until = Instant::ZERO;
        }
        self.heal();
        for host in 0..self.hosts.len() {
            self.restart(host);
            self.serve_on(host);
        }
    }
}
