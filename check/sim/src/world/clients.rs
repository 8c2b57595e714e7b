//! Lets clients act.

use sedge_base::Duration;
use sedge_mqtt::{QoS, TopicFilter};

use super::World;
use crate::network::WINDOW_BYTES;
use crate::schedule::{Event, delay};
use crate::workload::{Action, draw};

/// Silence after which a client asks whether the broker is still there.
const PING_AFTER: Duration = Duration::from_secs(1);

/// Silence after which a client gives its connection up.
const GIVE_UP_AFTER: Duration = Duration::from_secs(8);

impl World {
    pub(super) fn act(&mut self, client: usize) {
        let pause = if self.calm { Duration::from_millis(500) } else { self.options.pause };
        let next = self.now + delay(&mut self.client_rng, pause);
        self.schedule.at(next, Event::Act { client });
        let Some(wire) = self.clients[client].wire else {
            self.connect(client);
            return;
        };
        let silence = self.now - self.clients[client].last_heard;
        let is_served = self.clients[client].connected;
        let patience = self.options.hasty.filter(|_| !is_served && !self.calm).unwrap_or(GIVE_UP_AFTER);
        if silence > patience {
            self.drop_connection(client, false);
        } else if self.clients[client].connected {
            if silence > PING_AFTER {
                self.clients[client].ping();
            }
            match (self.calm, self.oracle.workers.contains(&client)) {
                (true, _) => {}
                (false, true) => self.share(client),
                (false, false) => self.work(client),
            }
            self.pump(wire, 0, WINDOW_BYTES);
        }
    }

    fn connect(&mut self, client: usize) {
        let before = self.clients[client].home;
        let wanders = self.options.roaming && self.client_rng.chance(1, 2);
        if wanders || !self.hosts[self.clients[client].home].up || self.is_draining(self.clients[client].home) {
            self.clients[client].home = self.client_rng.index(self.hosts.len());
        }
        let home = self.clients[client].home;
        if home != before {
            self.oracle.moves(client, self.now);
        }
        if !self.hosts[home].up {
            return;
        }
        let wire = self.connect_client(client, home);
        self.trace.note(self.now, format_args!("client {client} connects to host {home}"));
        self.clients[client].opened(self.now, wire);
        self.pump(wire, 0, WINDOW_BYTES);
    }

    fn work(&mut self, client: usize) {
        let action = draw(&mut self.client_rng, self.options.client_drops);
        self.trace.note(self.now, format_args!("client {client} {action:?}"));
        let one = &mut self.clients[client];
        match action {
            Action::Publish { topic, qos, retain } => one.publish(self.now, topic, qos, retain, &mut self.oracle),
            Action::Subscribe { filter, qos } => one.subscribe(self.now, filter, qos, &mut self.oracle),
            Action::Unsubscribe => {
                if let Some(filter) = one.settled_subscription() {
                    one.unsubscribe(self.now, filter, &mut self.oracle);
                }
            }
            Action::Drop => self.drop_connection(client, false),
            Action::Disconnect => self.drop_connection(client, true),
            Action::Nothing => {}
        }
    }

    /// An action of a member of the shared subscription: the member subscribes once in each session, and comes and goes.
    fn share(&mut self, client: usize) {
        let one = &mut self.clients[client];
        if !one.is_subscribed() {
            let Ok(filter) = TopicFilter::new("$share/workers/#") else { unreachable!("a filter") };
            return one.subscribe(self.now, filter, QoS::ExactlyOnce, &mut self.oracle);
        }
        match self.client_rng.below(100) {
            0..4 => self.drop_connection(client, false),
            4 => self.drop_connection(client, true),
            _ => {}
        }
    }

    fn drop_connection(&mut self, client: usize, politely: bool) {
        let Some(wire) = self.clients[client].wire else { return };
        if politely {
            self.clients[client].disconnect();
            self.pump(wire, 0, usize::MAX);
        }
        self.close_end(wire, 0, true);
        self.clients[client].closed(self.now, &mut self.oracle);
    }
}
