//! The machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sedge_base::{ClientId, Deadlines, Instant, LookupMap, Now, Outbox, Rng, Seed};
use sedge_mqtt::Version;
use slab::Slab;

use crate::conversation::{Asked, Conversation, Key, Login, Party, Phase, What};
use crate::{
    Answer, Attach, BrokerStatus, ConversationStatus, Input, LinkId, Output, Request, SidecarConfig, SidecarCounters,
};

/// Action that is due at a time, and its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The broker is dialled again.
    Retry(Key),
    /// A connection without CONNACK has failed.
    Connect(Key),
    /// The broker is sent a PINGREQ, or has not answered one.
    Ping(Key),
    /// The client's grace is over: it does not wait for the broker any longer.
    Grace(Key),
    /// The first expectation of a conversation ends.
    Expected(Key),
}

/// A publication that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// The conversation of the client that published it, if it has one.
    pub(crate) by: Option<Key>,
    /// Deliveries that are expected of the broker.
    pub(crate) deliveries: u32,
    /// Sessions are to get it, and the broker has not been sent it.
    pub(crate) is_queued: bool,
    /// When the broker answered.
    pub(crate) answered_at: Option<Instant>,
}

/// The conversations of one shard with the broker behind it: feed it [`Input`]s, then take [`Output`]s until there are none.
#[derive(Debug)]
pub struct Sidecar {
    pub(crate) config: SidecarConfig,
    pub(crate) seed: Seed,
    /// Time of the present call.
    pub(crate) now: Now,
    pub(crate) conversations: Slab<Box<Conversation>>,
    pub(crate) clients: LookupMap<ClientId, Key>,
    /// Conversations that take the place of a client's other one when the broker accepts them.
    pub(crate) probes: LookupMap<ClientId, Key>,
    pub(crate) inlets: Vec<Key>,
    pub(crate) timers: Deadlines<Timer>,
    pub(crate) outputs: VecDeque<Output>,
    pub(crate) counters: SidecarCounters,
    pub(crate) last_link: u64,
    /// Number of the last publication.
    pub(crate) last_number: u64,
    /// Conversations with bytes to read in [`Sidecar::read_on`].
    pub(crate) unread: BTreeSet<Key>,
    /// Live conversations with publications that wait for the broker's window.
    pub(crate) queued: BTreeSet<Key>,
    /// Publications that the broker has not answered, or not delivered everywhere.
    pub(crate) open: BTreeMap<u64, Open>,
    /// Open publications that sessions still wait for.
    pub(crate) awaited: BTreeSet<u64>,
    pub(crate) broker: BrokerStatus,
    /// A broker that took a 5.0 CONNECT once has MQTT 5.0.
    pub(crate) has_v5: bool,
    /// Whether [`crate::Event::Up`] was put out since the broker came up: it is logged once per connection, and once more if the version
    /// subscription of the first inlet brings another version.
    pub(crate) told_up: bool,
}

impl Sidecar {
    /// A sidecar without clients. It dials the broker at the first [`Sidecar::handle_timeout`].
    pub fn new(mut config: SidecarConfig, mut rng: Rng) -> Self {
        config.inlets = config.inlets.max(1);
        config.window = config.window.max(1);
        let seed = Seed::from_rng(&mut rng);
        let mut sidecar = Self {
            seed,
            now: Now::default(),
            conversations: Slab::new(),
            clients: LookupMap::new(seed),
            probes: LookupMap::new(seed),
            inlets: Vec::new(),
            timers: Deadlines::new(),
            outputs: VecDeque::new(),
            counters: SidecarCounters::default(),
            last_link: 0,
            last_number: 0,
            unread: BTreeSet::new(),
            queued: BTreeSet::new(),
            open: BTreeMap::new(),
            awaited: BTreeSet::new(),
            broker: BrokerStatus::default(),
            has_v5: false,
            told_up: false,
            config,
        };
        for number in 0..sidecar.config.inlets {
            let mut inlet = Conversation::new(Party::Inlet(number), Version::V5, Instant::ZERO, &sidecar.config);
            let config = &sidecar.config;
            inlet.login = Login::new(config.inlet_user.clone(), config.inlet_password.clone());
            let key = sidecar.conversations.insert(Box::new(inlet));
            sidecar.inlets.push(key);
            sidecar.timers.set(Timer::Retry(key), Instant::ZERO);
        }
        sidecar
    }

    /// Takes an event in. Events about unknown clients and connections are ignored.
    pub fn handle(&mut self, now: Now, input: Input) {
        self.now = now;
        match input {
            Input::Attach(attach) => self.on_attach(*attach),
            Input::Flush(client) => self.on_flush(&client),
            Input::Detach(client) => self.on_detach(&client),
            Input::Subscribe { client, token, requests, is_brought } => {
                if is_brought && let Some(&key) = self.clients.get(&client) {
                    self.ignore_earlier(key, &client, &requests);
                }
                self.ask(&client, token, (What::Subscribe(requests), is_brought));
            }
            Input::Unsubscribe { client, token, filters } => {
                self.ask(&client, token, (What::Unsubscribe(filters), false));
            }
            Input::Sync { client, requests } => self.on_sync(&client, requests),
            Input::Publish(publication) => self.on_publication(publication),
            Input::Ping { client, token } => self.on_client_ping(&client, token),
            Input::Hold { client, held } => self.on_hold(&client, held),
            Input::Opened(link) => self.on_opened(link),
            Input::Received { link, bytes } => self.on_received(link, bytes),
            Input::Written { link, bytes } => self.on_written(link, bytes),
            Input::Closed { link, why } => self.on_closed(link, &why),
        }
    }

    /// Does the work that is due at `now`.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some(timer) = self.timers.pop_due(now.instant) {
            match timer {
                Timer::Retry(key) => self.dial(key),
                Timer::Connect(key) => self.fail(key, "no CONNACK in time"),
                Timer::Ping(key) => self.on_ping_timer(key),
                Timer::Grace(key) => self.on_grace_over(key),
                Timer::Expected(key) => self.on_expected_timer(key),
            }
        }
    }

    /// The next thing to do, `None` if there is nothing for now.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Time at which [`Sidecar::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The conversation that has this connection now.
    pub(crate) fn conversation_of(&self, link: LinkId) -> Option<Key> {
        let key = link.conversation();
        (self.conversations.get(key)?.link == Some(link)).then_some(key)
    }

    /// Bytes that a connection has to write; the owner says how many of them were written with [`Input::Written`]. `None` if the
    /// connection is forgotten.
    pub fn outbox(&mut self, link: LinkId) -> Option<&mut Outbox> {
        let conversation = self.conversations.get_mut(self.conversation_of(link)?)?;
        conversation.transmitting = false;
        Some(&mut conversation.outbox)
    }

    /// Counters of the sidecar.
    pub const fn counters(&self) -> SidecarCounters {
        self.counters
    }

    /// The broker behind the sidecar.
    pub const fn broker(&self) -> &BrokerStatus {
        &self.broker
    }

    /// Whether the conversation of a 5.0 client is 3.1.1, so that retained messages come without their properties.
    pub fn is_lesser(&self, client: &ClientId) -> bool {
        let conversation = self.clients.get(client).and_then(|key| self.conversations.get(*key));
        conversation.is_some_and(|found| found.asked_for == Version::V5 && found.version == Version::V311)
    }

    /// Whether this client has a conversation.
    pub fn has(&self, client: &ClientId) -> bool {
        self.clients.contains_key(client)
    }

    /// All conversations, in an order that depends only on the inputs.
    pub fn conversations(&self) -> impl Iterator<Item = ConversationStatus> {
        self.conversations.iter().map(|(_, conversation)| ConversationStatus {
            client: conversation.client().cloned(),
            is_open: conversation.phase == Phase::Live,
            version: conversation.version,
            filters: conversation.filters.len(),
            unanswered: conversation.sent.len(),
            waiting: conversation.unsent.len(),
            expected: conversation.expected.as_ref().map_or(0, |expected| expected.len()),
        })
    }

    /// Number of the last publication that was taken in.
    pub const fn last(&self) -> u64 {
        self.last_number
    }

    /// All publications up to this number are in the sessions that the broker was to deliver them to, or never will be. That the broker
    /// itself has not taken some of them yet makes no difference.
    pub fn settled(&self) -> u64 {
        self.awaited.first().map_or(self.last_number, |first| first - 1)
    }

    /// Whether that is true of this publication; [`Output::Settled`] says when it becomes so.
    pub fn is_settled(&self, number: u64) -> bool {
        !self.awaited.contains(&number)
    }

    /// One more session waits for a publication.
    pub(crate) fn note_awaited(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.deliveries += 1;
            self.awaited.insert(number);
        }
    }

    /// Sessions wait for a publication that the broker has yet to be sent.
    pub(crate) fn note_queued(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.is_queued = true;
            self.awaited.insert(number);
        }
    }

    /// Sessions that wait for a publication wait for the broker's delivery from now on.
    pub(crate) fn not_queued(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.is_queued = false;
            self.check_settled(number);
        }
    }

    /// One session less waits for a publication.
    pub(crate) fn settle(&mut self, number: u64) {
        if let Some(open) = self.open.get_mut(&number) {
            open.deliveries = open.deliveries.saturating_sub(1);
            self.check_settled(number);
        }
    }

    /// The broker has answered a publication, or will never get it.
    pub(crate) fn note_answered(&mut self, number: u64) {
        let now = self.now.instant;
        if let Some(open) = self.open.get_mut(&number) {
            (open.answered_at, open.is_queued) = (Some(now), false);
            self.check_settled(number);
        }
    }

    fn check_settled(&mut self, number: u64) {
        let Some(open) = self.open.get(&number).filter(|open| open.deliveries == 0 && !open.is_queued) else { return };
        if open.answered_at.is_some() {
            self.open.remove(&number);
        }
        if self.awaited.remove(&number) {
            self.outputs.push_back(Output::Settled(number));
        }
    }

    fn on_attach(&mut self, attach: Attach) {
        let Attach { client, version, user, password, origin } = attach;
        let login = Login::new(user, password);
        let existing = self.clients.get(&client).copied();
        if let Some(key) = existing
            && let Some(conversation) = self.conversations.get_mut(key)
            && conversation.login == login
            && conversation.certificate() == origin.certificate.as_deref()
            && conversation.asked_for == version
        {
            if conversation.phase == Phase::Live {
                self.outputs.push_back(Output::Attached(client, Answer::Open));
            } else {
                conversation.attaching = true;
                conversation.failures = 0;
                self.timers.set(Timer::Grace(key), self.now.instant + self.config.grace);
                if conversation.phase == Phase::Idle {
                    self.dial(key);
                }
            }
            return;
        }
        if let Some(key) = self.probes.remove(&client) {
            self.give_up(key);
        }
        let wanted = if self.broker.only_311 { Version::V311 } else { version };
        let mut conversation = Conversation::new(Party::Client(client.clone()), wanted, self.now.instant, &self.config);
        (conversation.login, conversation.attaching) = (login, true);
        conversation.origin = self.config.tells_origins.then(|| Box::new(origin));
        conversation.asked_for = version;
        let key = self.conversations.insert(Box::new(conversation));
        self.probes.insert(client, key);
        self.timers.set(Timer::Grace(key), self.now.instant + self.config.grace);
        self.dial(key);
    }

    /// The broker has accepted a client: from now on this is its conversation.
    pub(crate) fn promote(&mut self, client: &ClientId, key: Key) {
        if self.probes.get(client) != Some(&key) {
            return;
        }
        self.probes.remove(client);
        let old = self.clients.insert(client.clone(), key);
        let Some(old) = old.and_then(|old| Some((old, self.conversations.get_mut(old)?))) else { return };
        let (old, conversation) = old;
        let (filters, asked) = (core::mem::take(&mut conversation.filters), core::mem::take(&mut conversation.asked));
        self.let_end(old);
        if let Some(conversation) = self.conversations.get_mut(key) {
            conversation.filters = filters;
            conversation.asked = asked;
            conversation.asked.retain(|asked| asked.token.is_some());
            for asked in conversation.asked.iter_mut() {
                asked.id = None;
            }
        }
    }

    /// The client's session leaves: its outstanding deliveries, also of publications that the broker has yet to get, are made from the copies
    /// here. So are the deliveries of the client's own publications: they count as published wherever its session goes.
    fn on_flush(&mut self, client: &ClientId) {
        let Some(&key) = self.clients.get(client) else { return };
        self.cover(key);
        let is_own = |number: &&u64| self.open.get(number).is_some_and(|open| open.by == Some(key));
        let own: Vec<u64> = self.awaited.iter().filter(is_own).copied().collect();
        if own.is_empty() {
            return;
        }
        let awaits = |found: &Conversation| {
            let expected = found.expected.as_ref().filter(|expected| expected.len() > 0);
            expected.is_some_and(|expected| own.iter().any(|number| expected.awaits(*number)))
        };
        let waiting: Vec<Key> =
            self.conversations.iter().filter(|(_, found)| awaits(found)).map(|(key, _)| key).collect();
        for key in waiting {
            self.cover(key);
        }
    }

    fn on_detach(&mut self, client: &ClientId) {
        if let Some(key) = self.probes.remove(client) {
            self.give_up(key);
        }
        if let Some(key) = self.clients.remove(client) {
            self.let_end(key);
        }
    }

    /// A conversation ends when the broker has answered all publications on their way.
    fn let_end(&mut self, key: Key) {
        self.timers.cancel(&Timer::Grace(key));
        self.cover(key);
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.filters.clear();
        conversation.asked.clear();
        conversation.replaying = 0;
        if conversation.phase != Phase::Live {
            return self.give_up(key);
        }
        conversation.phase = Phase::Closing;
        self.close_if_done(key);
    }

    /// Passes a client's subscriptions or unsubscriptions to the broker; the answer may wait for the broker.
    fn ask(&mut self, client: &ClientId, token: u64, (what, is_brought): (What, bool)) {
        let Some(&key) = self.clients.get(client) else {
            let count = match &what {
                What::Subscribe(requests) => requests.len(),
                What::Unsubscribe(filters) => filters.len(),
            };
            // There is no conversation with the broker: its answer is not known.
            let reasons = vec![sedge_mqtt::ReasonCode::UnspecifiedError; count];
            return self.outputs.push_back(Output::Answered { token, reasons });
        };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        conversation.asked.push_back(Asked { id: None, token: Some(token), is_brought, what });
        self.send_asked(key);
    }

    fn on_sync(&mut self, client: &ClientId, mut requests: Vec<Request>) {
        let Some(&key) = self.clients.get(client) else { return };
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        requests.retain(|request| !conversation.filters.contains_key(&request.filter));
        self.ignore_earlier(key, client, &requests);
        self.replay_these(key, requests);
        self.send_asked(key);
    }

    /// Gives the broker back the subscriptions it had.
    pub(crate) fn replay(&mut self, key: Key) {
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let requests: Vec<Request> = conversation
            .filters
            .iter()
            .map(|(filter, held)| Request {
                filter: filter.clone(),
                options: held.options,
                id: held.id,
                retained: false,
            })
            .collect();
        self.replay_these(key, requests);
    }

    /// A hundred filters in one packet.
    fn replay_these(&mut self, key: Key, requests: Vec<Request>) {
        const AT_ONCE: usize = 100;
        let Some(conversation) = self.conversations.get_mut(key) else { return };
        let mut batches: Vec<Vec<Request>> = Vec::new();
        for request in requests {
            // One packet has one identifier for all its filters (MQTT 5.0 section 3.8.2.1.2).
            match batches.last_mut() {
                Some(batch) if batch.len() < AT_ONCE && batch[0].id == request.id => batch.push(request),
                _ => batches.push(vec![request]),
            }
        }
        conversation.replaying += batches.len();
        conversation.mutes_retained |= !batches.is_empty();
        for batch in batches.into_iter().rev() {
            conversation.asked.push_front(Asked {
                id: None,
                token: None,
                is_brought: false,
                what: What::Subscribe(batch),
            });
        }
    }

    /// Says once that a connection has something to write.
    pub(crate) fn transmit(&mut self, key: Key) {
        if let Some(conversation) = self.conversations.get_mut(key)
            && let Some(link) = conversation.link
            && !conversation.transmitting
            && !conversation.outbox.is_empty()
        {
            conversation.transmitting = true;
            self.outputs.push_back(Output::Transmit(link));
        }
    }

    /// Checks the invariants that hold after each event; panics if one does not. For tests.
    pub fn validate(&self) {
        for (client, key) in self.conversations.iter().filter_map(|(key, found)| Some((found.client()?, key))) {
            let current = self.clients.get(client) == Some(&key) || self.probes.get(client) == Some(&key);
            let closing = self.conversations[key].phase == Phase::Closing;
            assert!(current != closing, "a conversation is the client's or closing");
        }
        for (key, conversation) in &self.conversations {
            assert!(
                conversation.link.is_none_or(|link| link.conversation() == key),
                "a connection names its conversation"
            );
            assert_eq!(
                conversation.link.is_some(),
                conversation.phase != Phase::Idle,
                "a phase with a connection has one"
            );
            let asked: Vec<_> = conversation.asked.iter().filter_map(|asked| asked.id).collect();
            let ids = conversation.sent.iter().map(|sent| sent.id).chain(asked);
            let mut ids: Vec<_> = ids.collect();
            let count = ids.len();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), count, "packet identifiers are used once");
            let bytes: usize =
                conversation.unsent.iter().map(|carried| crate::expected::weight(&carried.message)).sum();
            assert_eq!(bytes, conversation.unsent_bytes, "waiting bytes are counted");
        }
        let deliveries: u64 = self.open.values().map(|open| u64::from(open.deliveries)).sum();
        let expected: usize = self
            .conversations
            .iter()
            .filter_map(|(_, found)| found.expected.as_ref())
            .map(|expected| expected.len())
            .sum();
        assert_eq!(deliveries, expected as u64, "what is expected is counted");
        let awaited = self.open.iter().filter(|(_, open)| open.deliveries > 0 || open.is_queued);
        assert!(awaited.map(|(number, _)| number).eq(&self.awaited), "what sessions wait for is known");
        let unanswered: usize = self.conversations.iter().map(|(_, found)| found.sent.len() + found.unsent.len()).sum();
        let open = self.open.values().filter(|open| open.answered_at.is_none()).count();
        assert_eq!(open, unanswered, "a publication that is not answered is in some conversation");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Origin;

    fn attach(sidecar: &mut Sidecar, certificate: &str) -> Vec<Output> {
        let origin = Origin { address: "192.0.2.1:1".to_owned(), certificate: Some(certificate.to_owned()) };
        let client = ClientId::new("a");
        let attach = Attach { client, version: Version::V5, user: None, password: None, origin };
        sidecar.handle(Now::default(), Input::Attach(Box::new(attach)));
        core::iter::from_fn(|| sidecar.poll_output()).collect()
    }

    fn dialled(outputs: &[Output]) -> Option<(LinkId, Option<String>)> {
        outputs.iter().find_map(|output| {
            let Output::Dial { link, origin: Some(origin) } = output else { return None };
            Some((*link, origin.certificate.clone()))
        })
    }

    /// The broker may know a client by the name in its certificate: nobody else goes on with that client's conversation.
    #[test]
    fn another_certificate_gets_a_conversation_of_its_own() {
        let config = SidecarConfig { tells_origins: true, ..SidecarConfig::default() };
        let mut sidecar = Sidecar::new(config, Rng::new(1));
        let outputs = attach(&mut sidecar, "sensor 7");
        let (link, name) = dialled(&outputs).expect("a conversation begins");
        assert_eq!(name.as_deref(), Some("sensor 7"));
        sidecar.handle(Now::default(), Input::Opened(link));
        sidecar.handle(Now::default(), Input::Received { link, bytes: Bytes::from_static(&[0x20, 3, 0, 0, 0]) });
        while sidecar.poll_output().is_some() {}
        let again = attach(&mut sidecar, "sensor 7");
        assert!(dialled(&again).is_none() && matches!(again[..], [Output::Attached(_, Answer::Open)]), "{again:?}");
        let other = attach(&mut sidecar, "sensor 8");
        assert_eq!(dialled(&other).and_then(|(_, name)| name).as_deref(), Some("sensor 8"));
    }
}
