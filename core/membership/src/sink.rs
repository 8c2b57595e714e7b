//! Collects the datagrams, notifications and timers that `foca` gives out during one call.

use std::collections::VecDeque;

use bytes::Bytes;
use foca::{Notification, OwnedNotification, Runtime, Timer};
use sedge_base::Duration;

use crate::Member;

#[derive(Default)]
pub(crate) struct Sink {
    pub(crate) sent: VecDeque<(Member, Bytes)>,
    pub(crate) told: VecDeque<OwnedNotification<Member>>,
    pub(crate) timers: VecDeque<(Duration, Timer<Member>)>,
}

impl Runtime<Member> for Sink {
    fn notify(&mut self, notification: Notification<'_, Member>) {
        self.told.push_back(notification.to_owned());
    }

    fn send_to(&mut self, to: Member, data: &[u8]) {
        self.sent.push_back((to, Bytes::copy_from_slice(data)));
    }

    fn submit_after(&mut self, event: Timer<Member>, after: Duration) {
        self.timers.push_back((after, event));
    }
}
