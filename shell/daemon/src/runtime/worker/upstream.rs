//! The turn's part for the broker behind this node.

use std::time::Duration;

use mio::Events;
use sedge_cluster::UpstreamOutput;
use sedge_sidecar::Event;

use super::Worker;
use crate::runtime::pace::Pace;
use crate::runtime::{LineKind, Upstreams};

impl Worker {
    pub(super) fn read_upstream(&mut self) {
        if let Some(upstreams) = &mut self.upstreams {
            upstreams.retry(self.poll.registry(), (self.now, &mut self.shard));
            self.stats.crowded = upstreams.crowded();
            upstreams.read(self.poll.registry(), (self.now, &mut self.shard), &mut self.chunk, &mut self.stats);
            self.settle();
        }
    }

    pub(super) fn flush_upstream(&mut self) {
        if let Some(upstreams) = &mut self.upstreams {
            upstreams.flush(self.poll.registry(), (self.now, &mut self.shard), &mut self.stats);
        }
    }

    /// Looks for the broker's answer to what the last turn has written to it, without sleeping. Says whether anything has happened.
    pub(super) fn linger(&mut self, events: &mut Events, timeout: Option<Duration>, pace: &mut Pace) -> bool {
        let has_written = self.upstreams.as_mut().is_some_and(Upstreams::take_written);
        let Some(longest) = pace.linger(has_written) else { return false };
        let longest = longest.min(timeout.unwrap_or(longest));
        let until = self.clock() + longest;
        while !longest.is_zero() {
            if self.look(events, Some(Duration::ZERO)).is_err() {
                return false;
            }
            if !events.is_empty() || self.clock() >= until {
                self.stats.lingers += 1;
                pace.lingered(!events.is_empty());
                return !events.is_empty();
            }
            std::thread::yield_now();
        }
        false
    }

    pub(super) fn upstream_output(&mut self, output: UpstreamOutput) {
        if let UpstreamOutput::Event(event) = output {
            return self.log_upstream(&event);
        }
        let Some(upstreams) = &mut self.upstreams else { return };
        match output {
            UpstreamOutput::Dial { link, origin } => {
                upstreams.dial(self.poll.registry(), (self.now, &mut self.shard), link, origin);
            }
            UpstreamOutput::Transmit(link) => upstreams.transmit(link),
            UpstreamOutput::Close(link) => upstreams.close(link),
            UpstreamOutput::Hold(link, held) => upstreams.hold(link, held),
            UpstreamOutput::Event(_) => {}
        }
    }

    fn log_upstream(&mut self, event: &Event) {
        if !self.may_log(LineKind::Cluster) {
            return;
        }
        let address = self.upstream_address.as_str();
        match event {
            Event::Up { version } => tracing::info!(address, version, "the broker behind this node takes connections"),
            Event::Down(why) => tracing::warn!(address, why, "the broker behind this node is away (upstream.address)"),
            Event::InletRefused(reason) => {
                tracing::warn!(address, ?reason, "the broker behind this node refuses the node itself (upstream.user)");
            }
            Event::Garbage(what) => {
                tracing::warn!(address, what, "the broker behind this node breaks the rules of MQTT");
            }
            Event::Only311 => tracing::info!(address, "the broker behind this node has no MQTT 5.0"),
        }
    }
}
