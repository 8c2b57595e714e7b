//! A foreign broker behind this node (spec `interworking.md`): it delivers to the ordinary subscriptions here.
//!
//! | What | Way |
//! |---|---|
//! | CONNECT | the broker behind is asked for a conversation, then the client id is claimed in the cluster |
//! | SUBSCRIBE, UNSUBSCRIBE | the broker behind answers first (IL-22), then the cluster hears of it, then the client is answered |
//! | PUBLISH of a client | the broker behind acknowledges it first, then it is routed to the cluster, then the client is answered |
//! | publication of another node | goes through an inlet into the broker behind, which delivers it |
//! | `$share` filters and topics of Sedge itself | stay with Sedge; the broker behind sees neither |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use sedge_base::{ClientId, ConnId, Duration, Instant, Now, Outbox, Rng};
use sedge_broker::{Deliver, Input, InterestChange, InterestOp, Output, Place, SessionState, Ticket};
use sedge_mqtt::{Message, MessageId, QoS, ReasonCode, TopicFilter};
use sedge_sidecar::{
    Answer, Attach, BrokerStatus, ConversationStatus, LinkId, Origin, Publication, Receiver, Request, Share, Sidecar,
    SidecarConfig, SidecarCounters,
};
use smallvec::SmallVec;

use super::Shard;
use super::handover::ids_of;
use crate::mail::{Heard, Interest, Mark, Relinquish, Retained, ToNode};
use crate::{ShardOutput, UpstreamInput, UpstreamOutput};

/// Retained messages whose entry is remembered, so that they are not entered a second time as publications.
const ENTERED_AT_MOST: usize = 1024;

/// Publications that are remembered until all sessions have had them; with more, the oldest are known to have come with a later one.
const UNSETTLED_AT_MOST: usize = 65_536;

/// A connected client is behind, and gets no more from the broker behind, from this part of its queue's limits on: one in so many.
const BEHIND_FROM: usize = 2;
/// It is behind no more below this part of them.
const BEHIND_TO: usize = 8;

/// So long a publication waits for earlier ones that the broker behind does not acknowledge: one client may be stuck there.
const PATIENCE: Duration = Duration::from_secs(2);

/// A publication of a client that has not left for the cluster: the broker behind has not acknowledged it, or an earlier one.
#[derive(Debug)]
struct Waiting {
    message: Arc<Message>,
    ticket: Option<Ticket>,
    matched: bool,
    is_acknowledged: bool,
    since: Instant,
}

/// A request of a client that the broker behind has not answered.
#[derive(Debug)]
struct Asked {
    client: ClientId,
    changes: Vec<InterestChange>,
    /// Requests to the broker behind, in their order.
    filters: Vec<TopicFilter>,
    ticket: Option<Ticket>,
}

/// The sidecar, and the items that wait for the broker behind it.
#[derive(Debug)]
pub(super) struct Upstream {
    pub(super) sidecar: Sidecar,
    last_token: u64,
    /// Connections that wait for a conversation, and whether their sessions start clean.
    attaching: BTreeMap<ClientId, (ConnId, bool)>,
    /// Names in the certificates of clients whose CONNECT is awaited.
    certificates: BTreeMap<ConnId, String>,
    asked: BTreeMap<u64, Asked>,
    publishing: BTreeMap<u64, Waiting>,
    /// For those up to this one nobody waits any longer.
    passed_over: u64,
    entered: BTreeSet<MessageId>,
    entered_order: VecDeque<MessageId>,
    /// Marks that wait until everything up to this publication has been delivered.
    marks: VecDeque<(u64, Mark)>,
    /// Under which numbers the broker behind got clients' publications that are not acknowledged.
    numbers: BTreeMap<Ticket, u64>,
    /// Acknowledgements that wait until the broker behind has delivered everywhere here.
    accepted: BTreeMap<u64, (Ticket, ReasonCode)>,
    /// Publications, each of which has come to all sessions here when everything up to a number has been delivered.
    unsettled: VecDeque<(u64, MessageId)>,
    /// The last one of this shard's own that has.
    own_come: u64,
    /// Sessions that are to leave once the broker behind has answered what their clients have published with QoS 2, or [`PATIENCE`] is over.
    leaving: VecDeque<(Instant, Relinquish)>,
    /// Connected clients that are behind: the broker behind is not read for them.
    behind: BTreeSet<ClientId>,
}

impl Upstream {
    pub(super) fn new(config: SidecarConfig, rng: Rng) -> Self {
        Self {
            sidecar: Sidecar::new(config, rng),
            last_token: 0,
            attaching: BTreeMap::new(),
            certificates: BTreeMap::new(),
            asked: BTreeMap::new(),
            publishing: BTreeMap::new(),
            passed_over: 0,
            entered: BTreeSet::new(),
            entered_order: VecDeque::new(),
            marks: VecDeque::new(),
            numbers: BTreeMap::new(),
            accepted: BTreeMap::new(),
            unsettled: VecDeque::new(),
            own_come: 0,
            leaving: VecDeque::new(),
            behind: BTreeSet::new(),
        }
    }

    /// Whether a session may leave. The new owner takes what the client repeats with QoS 2 for known: it has to be on its way from here, even
    /// if this node dies.
    fn may_leave(&self, now: Now, since: Instant, client: &ClientId) -> bool {
        let is_own = |waiting: &Waiting| {
            waiting.message.qos == QoS::ExactlyOnce && waiting.message.publisher.as_ref() == Some(client)
        };
        since + PATIENCE <= now.instant || !self.publishing.values().any(is_own)
    }

    fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// The first publication that others wait for.
    fn awaited(&self) -> Option<(u64, &Waiting)> {
        let mut waiting = self.publishing.range(self.passed_over + 1..);
        waiting.find(|(_, waiting)| !waiting.is_acknowledged).map(|(token, waiting)| (*token, waiting))
    }

    /// False if this message has been entered before.
    fn note_entered(&mut self, id: MessageId) -> bool {
        if !self.entered.insert(id) {
            return false;
        }
        self.entered_order.push_back(id);
        if self.entered_order.len() > ENTERED_AT_MOST
            && let Some(oldest) = self.entered_order.pop_front()
        {
            self.entered.remove(&oldest);
        }
        true
    }
}

/// Whether the broker behind is asked for this filter, or gets publications of this topic: Sedge's own topics and shared subscriptions
/// are Sedge's.
fn is_foreign(text: &str) -> bool {
    let own = ["$SYS", "$sedge", "$share"];
    let first = text.split('/').next().unwrap_or_default();
    !own.contains(&first)
}

impl Shard {
    /// The broker behind this node, if there is one.
    pub fn upstream(&self) -> Option<(&BrokerStatus, SidecarCounters)> {
        self.upstream.as_ref().map(|upstream| (upstream.sidecar.broker(), upstream.sidecar.counters()))
    }

    /// Packets that clients, and the broker behind this node, have sent.
    pub fn packets_in(&self) -> u64 {
        self.broker().counters().packets_in + self.upstream().map_or(0, |(_, counters)| counters.packets_in)
    }

    /// All conversations with the broker behind this node.
    pub fn conversations(&self) -> impl Iterator<Item = ConversationStatus> {
        self.upstream.iter().flat_map(|upstream| upstream.sidecar.conversations())
    }

    /// The bytes that a connection to the broker behind has to write; `None` if it is forgotten.
    pub fn upstream_outbox(&mut self, link: LinkId) -> Option<&mut Outbox> {
        self.upstream.as_mut()?.sidecar.outbox(link)
    }

    pub(super) fn upstream_input(&mut self, now: Now, input: UpstreamInput) {
        let Some(upstream) = &mut self.upstream else { return };
        let input = match input {
            UpstreamInput::Certificate { conn, name } => {
                upstream.certificates.insert(conn, name);
                return;
            }
            UpstreamInput::Opened(link) => sedge_sidecar::Input::Opened(link),
            UpstreamInput::Received { link, bytes } => sedge_sidecar::Input::Received { link, bytes },
            UpstreamInput::Written { link, bytes } => sedge_sidecar::Input::Written { link, bytes },
            UpstreamInput::Closed { link, why } => sedge_sidecar::Input::Closed { link, why },
        };
        upstream.sidecar.handle(now, input);
    }

    /// A client's connection has ended.
    pub(super) fn forget_certificate(&mut self, conn: ConnId) {
        if let Some(upstream) = &mut self.upstream {
            upstream.certificates.remove(&conn);
        }
    }

    /// Gives an output of the native broker to the broker behind first, where that has a say. Returns the output if it has none.
    pub(super) fn divert(&mut self, now: Now, output: Output) -> Option<Output> {
        if self.upstream.is_none() {
            return Some(output);
        }
        if let Output::Ended { client, .. } | Output::Relinquished { client, .. } = &output {
            self.leave_upstream(now, &client.clone());
        }
        if let Output::Close { conn } = &output {
            self.forget_certificate(*conn);
        }
        match output {
            Output::Claim { client, conn, clean_start } => self.attach(now, client, conn, clean_start),
            Output::Interest { client, changes, ticket } => self.ask_upstream(now, client, changes, ticket),
            Output::Ping { client, conn } => {
                if let Some(upstream) = &mut self.upstream {
                    upstream.sidecar.handle(now, sedge_sidecar::Input::Ping { client, token: conn.0 });
                }
                None
            }
            Output::Route { message, ticket, matched } if !self.is_restoring && is_foreign(message.topic.as_str()) => {
                self.enter_own(now, message, ticket, matched)
            }
            Output::Route { message, ticket, matched } if !self.is_restoring => {
                self.keep_order(now, message, ticket, matched)
            }
            Output::Transmit { .. }
            | Output::Close { .. }
            | Output::Hold { .. }
            | Output::Release { .. }
            | Output::Authenticate(_)
            | Output::Proceed { .. }
            | Output::Relinquished { .. }
            | Output::Ended { .. }
            | Output::Leaves { .. }
            | Output::Stays { .. }
            | Output::Census(_)
            | Output::Route { .. }
            | Output::Bounced { .. }
            | Output::Event(_) => Some(output),
        }
    }

    /// The session of a client is not here any more. The broker behind ends its subscriptions together with its conversation, and answers
    /// no request of it: the cluster hears at once what was to be withdrawn.
    fn leave_upstream(&mut self, now: Now, client: &ClientId) {
        let Some(upstream) = &mut self.upstream else { return };
        upstream.attaching.remove(client);
        let open = upstream.asked.extract_if(.., |_, asked| asked.client == *client);
        let mut changes: Vec<InterestChange> = open.flat_map(|(_, asked)| asked.changes).collect();
        changes.retain(|change| change.op == InterestOp::Remove);
        upstream.sidecar.handle(now, sedge_sidecar::Input::Detach(client.clone()));
        self.handovers.withhold(client, &mut changes);
        self.withdraw(client, changes);
    }

    /// A client has come: the broker behind says whether it is let in.
    fn attach(&mut self, now: Now, client: ClientId, conn: ConnId, clean_start: bool) -> Option<Output> {
        // Bridges and rules are the node's own clients (their names are closed to others): no broker has accounts for them.
        let is_own = client.as_str().starts_with('$');
        let connecting = self.broker.connecting(conn).filter(|_| !is_own);
        let (Some(upstream), Some((connect, peer))) = (&mut self.upstream, connecting) else {
            return Some(Output::Claim { client, conn, clean_start });
        };
        let attach = Attach {
            client: client.clone(),
            version: connect.version,
            user: connect.username.clone(),
            password: connect.password.clone(),
            origin: Origin { address: peer.to_owned(), certificate: upstream.certificates.remove(&conn) },
        };
        upstream.attaching.insert(client, (conn, clean_start));
        upstream.sidecar.handle(now, sedge_sidecar::Input::Attach(Box::new(attach)));
        None
    }

    /// The broker behind is asked for what a client wants.
    fn ask_upstream(
        &mut self,
        now: Now,
        client: ClientId,
        mut changes: Vec<InterestChange>,
        ticket: Option<Ticket>,
    ) -> Option<Output> {
        let upstream = self.upstream.as_mut()?;
        let concerns = changes.iter().any(|change| is_foreign(change.filter.as_str()));
        if !concerns || !upstream.sidecar.has(&client) {
            return Some(Output::Interest { client, changes, ticket });
        }
        let token = upstream.token();
        // A 3.1.1 broker has retained messages without properties: a 5.0 client gets those of the cluster.
        let from_cluster = upstream.sidecar.is_lesser(&client);
        let (mut requests, mut filters) = (Vec::new(), Vec::new());
        for change in changes.iter_mut().filter(|change| is_foreign(change.filter.as_str())) {
            filters.push(change.filter.clone());
            if let InterestOp::Add { retained, .. } = &mut change.op {
                let (options, id) = self.broker.options_of(&client, &change.filter).unwrap_or_default();
                // Else the broker behind sends the retained messages.
                let retained = !from_cluster && core::mem::take(retained);
                requests.push(Request { filter: change.filter.clone(), options, id, retained });
            }
        }
        let input = if requests.is_empty() {
            sedge_sidecar::Input::Unsubscribe { client: client.clone(), token, filters: filters.clone() }
        } else {
            filters = requests.iter().map(|request| request.filter.clone()).collect();
            let is_brought = ticket.is_none_or(Ticket::resumes);
            sedge_sidecar::Input::Subscribe { client: client.clone(), token, requests, is_brought }
        };
        upstream.asked.insert(token, Asked { client, changes, filters, ticket });
        upstream.sidecar.handle(now, input);
        None
    }

    /// A client of this node has published.
    fn enter_own(&mut self, now: Now, message: Arc<Message>, ticket: Option<Ticket>, matched: bool) -> Option<Output> {
        let receivers = self.upstream_receivers(&message, true);
        let upstream = self.upstream.as_mut()?;
        let is_asked = ticket.is_some() && message.qos > QoS::AtMostOnce;
        let token = is_asked.then(|| upstream.token());
        let publication = Publication {
            via: message.publisher.clone(),
            message: Arc::clone(&message),
            retain: message.retain,
            is_restored: false,
            token,
            receivers,
        };
        if let Some(token) = token {
            let since = now.instant;
            upstream.publishing.insert(token, Waiting { message, ticket, matched, is_acknowledged: false, since });
            upstream.sidecar.handle(now, sedge_sidecar::Input::Publish(publication));
            upstream.numbers.extend(ticket.map(|ticket| (ticket, upstream.sidecar.last())));
            return None;
        }
        upstream.sidecar.handle(now, sedge_sidecar::Input::Publish(publication));
        self.keep_order(now, message, ticket, matched)
    }

    /// A publication that the broker behind need not acknowledge leaves behind what was published before it: the cluster takes what one shard
    /// sends for all that there is up to it.
    fn keep_order(&mut self, now: Now, message: Arc<Message>, ticket: Option<Ticket>, matched: bool) -> Option<Output> {
        let upstream = self.upstream.as_mut()?;
        if message.qos == QoS::AtMostOnce || upstream.publishing.is_empty() {
            return Some(Output::Route { message, ticket, matched });
        }
        let (token, since) = (upstream.token(), now.instant);
        upstream.publishing.insert(token, Waiting { message, ticket, matched, is_acknowledged: true, since });
        None
    }

    /// A client's publication is where it has to be elsewhere. Its acknowledgement waits until all sessions here have it, so that their
    /// copies do. Returns it if they have.
    pub(super) fn await_deliveries(&mut self, ticket: Ticket, reason: ReasonCode) -> Option<(Ticket, ReasonCode)> {
        let Some(upstream) = &mut self.upstream else { return Some((ticket, reason)) };
        let number = upstream.numbers.remove(&ticket).filter(|_| !reason.is_error() && self.journal.is_some());
        match number.filter(|number| !upstream.sidecar.is_settled(*number)) {
            Some(number) => {
                upstream.accepted.insert(number, (ticket, reason));
                None
            }
            None => Some((ticket, reason)),
        }
    }

    /// Whether a publication that is here has yet to come to a session, or another one before it has; [`Shard::has_come`] is called when they
    /// have.
    pub(super) fn is_delivered_later(&mut self, id: MessageId) -> bool {
        let Some(upstream) = &mut self.upstream else { return false };
        upstream.unsettled.push_back((upstream.sidecar.last(), id));
        if upstream.unsettled.len() > UNSETTLED_AT_MOST {
            upstream.unsettled.pop_front();
        }
        true
    }

    /// The last publication of this shard that has come to all sessions here; `None` without a broker behind.
    pub(super) fn own_come(&self) -> Option<MessageId> {
        let Place { node, incarnation, shard, .. } = self.place;
        self.upstream.as_ref().map(|upstream| MessageId { node, incarnation, shard, seq: upstream.own_come })
    }

    /// The session of a client is here, with all that the broker behind has yet to deliver to the sessions that were here before it: copies say
    /// so, or a session that goes on from them gets those messages once more.
    pub(super) fn note_had_before(&mut self, client: &ClientId) {
        let Place { node, incarnation, shard, .. } = self.place;
        let made = MessageId { node, incarnation, shard, seq: self.broker.last_made() };
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.unsettled.is_empty() && upstream.publishing.is_empty() {
            // No session here waits for a publication of this shard: not even one that nobody here wanted when it was made.
            upstream.own_come = made.seq;
            return self.has_come(made);
        }
        let mut marks = Heard::from([((node, incarnation, shard), made.seq)]);
        let leaving = upstream.publishing.values().map(|waiting| waiting.message.id);
        for id in upstream.unsettled.iter().map(|(_, id)| *id).chain(leaving) {
            let last = marks.entry((id.node, id.incarnation, id.shard)).or_default();
            *last = id.seq.max(*last);
        }
        self.has_had_before(client, marks);
    }

    fn note_settled(&mut self) {
        let Place { node, incarnation, shard, .. } = self.place;
        while let Some(upstream) = &mut self.upstream
            && let Some(&(number, id)) = upstream.unsettled.front()
            && upstream.sidecar.settled() >= number
        {
            upstream.unsettled.pop_front();
            if (id.node, id.incarnation, id.shard) == (node, incarnation, shard) {
                upstream.own_come = id.seq.max(upstream.own_come);
            }
            self.has_come(id);
        }
    }

    fn upstream_receivers(&mut self, message: &Message, is_live: bool) -> SmallVec<[Receiver; 2]> {
        let wanting = self.broker.receivers(message);
        let had = self.had_by(message);
        let receivers = wanting.into_iter().map(|wanting| Receiver {
            share: match (is_live && !had.contains(&wanting.client), wanting.no_local) {
                (false, _) => Share::Had,
                (true, true) => Share::NoLocal,
                (true, false) => Share::Copy,
            },
            client: wanting.client,
            matches: wanting.matches,
            qos: wanting.qos,
        });
        receivers.collect()
    }

    /// A publication of another node enters the broker behind, which delivers it; returns what is Sedge's to deliver.
    pub(super) fn enter_from_elsewhere(&mut self, now: Now, mut deliver: Deliver) -> Deliver {
        let Some(upstream) = &mut self.upstream else { return deliver };
        if !deliver.plain || !is_foreign(deliver.message.topic.as_str()) {
            return deliver;
        }
        deliver.plain = false;
        if deliver.message.retain && !upstream.note_entered(deliver.message.id) {
            return deliver;
        }
        // A retained message has been entered as such unless a later value was there before it.
        self.enter(now, &deliver.message, false, true);
        deliver
    }

    /// A retained message of another node is for the store of the broker behind, too.
    pub(super) fn enter_retained(&mut self, now: Now, retained: &Retained) {
        let Some(upstream) = &mut self.upstream else { return };
        let Retained { message, is_live } = retained;
        if !is_foreign(message.topic.as_str()) || (*is_live && !upstream.note_entered(message.id)) {
            return;
        }
        self.enter(now, message, true, *is_live);
    }

    fn enter(&mut self, now: Now, message: &Arc<Message>, retain: bool, is_live: bool) {
        let receivers = self.upstream_receivers(message, is_live);
        let Some(upstream) = &mut self.upstream else { return };
        let message = Arc::clone(message);
        let publication = Publication { via: None, message, retain, is_restored: !is_live, token: None, receivers };
        upstream.sidecar.handle(now, sedge_sidecar::Input::Publish(publication));
    }

    /// A mark waits until the broker behind has delivered what came before it. Returns it if nothing is open.
    pub(super) fn delay_mark(&mut self, mark: Mark) -> Option<Mark> {
        let Some(upstream) = &mut self.upstream else { return Some(mark) };
        let last = upstream.sidecar.last();
        if upstream.marks.is_empty() && upstream.sidecar.settled() >= last {
            return Some(mark);
        }
        upstream.marks.push_back((last, mark));
        None
    }

    fn let_marks_go(&mut self) {
        while let Some(upstream) = &mut self.upstream
            && let Some(&(number, mark)) = upstream.marks.front()
            && upstream.sidecar.settled() >= number
        {
            upstream.marks.pop_front();
            self.answer_mark(mark);
        }
    }

    /// Does what the sidecar asks for; says whether it asked for anything.
    pub(super) fn drain_sidecar(&mut self, now: Now) -> bool {
        let mut any = false;
        self.let_readers_go_on(now);
        loop {
            while let Some(output) = self.upstream.as_mut().and_then(|upstream| upstream.sidecar.poll_output()) {
                any = true;
                self.sidecar_output(now, output);
            }
            if !self.upstream.as_mut().is_some_and(|upstream| upstream.sidecar.read_on(now)) {
                break;
            }
        }
        self.note_settled();
        self.let_marks_go();
        any
    }

    /// A client that has room for no more is not sent more by the broker behind: retained messages are not dropped for want of room in a queue.
    fn hold_back(&mut self, now: Now, client: ClientId) {
        let Some(upstream) = &mut self.upstream else { return };
        if self.broker.is_behind(&client, BEHIND_FROM) && upstream.behind.insert(client.clone()) {
            upstream.sidecar.handle(now, sedge_sidecar::Input::Hold { client, held: true });
        }
    }

    /// Clients that have taken most of what waited for them get more, and those that are away: their queues have limits of their own.
    fn let_readers_go_on(&mut self, now: Now) {
        let Some(upstream) = &mut self.upstream else { return };
        let broker = &self.broker;
        for client in upstream.behind.extract_if(.., |client| !broker.is_behind(client, BEHIND_TO)) {
            upstream.sidecar.handle(now, sedge_sidecar::Input::Hold { client, held: false });
        }
    }

    fn sidecar_output(&mut self, now: Now, output: sedge_sidecar::Output) {
        use sedge_sidecar::Output as Up;
        let told = match output {
            Up::Dial { link, origin } => UpstreamOutput::Dial { link, origin },
            Up::Transmit(link) => UpstreamOutput::Transmit(link),
            Up::Close(link) => UpstreamOutput::Close(link),
            Up::Hold(link, held) => UpstreamOutput::Hold(link, held),
            Up::Event(event) => UpstreamOutput::Event(event),
            Up::Attached(client, answer) => return self.attached(now, client, answer),
            Up::Answered { token, reasons } => return self.answered(token, &reasons),
            Up::Published { token, reason } => return self.published(now, token, reason),
            Up::Delivered { client, message } => return self.broker.deliver_to_one(now, &client, &message),
            Up::Foreign { client, publish, version } => {
                self.broker.deliver_foreign(now, &client, *publish, version);
                return self.hold_back(now, client);
            }
            Up::Settled(number) => {
                let accepted = self.upstream.as_mut().and_then(|upstream| upstream.accepted.remove(&number));
                if let Some((ticket, reason)) = accepted {
                    self.broker.handle(now, Input::Accepted { ticket, reason });
                }
                return;
            }
            Up::Ponged(token) => return self.broker.pong(now, ConnId(token)),
            Up::Lost(client) => return self.broker.lose(now, &client),
            Up::Restore => return self.tell_node(ToNode::WantsRetained),
        };
        self.outputs.push_back(ShardOutput::Upstream(told));
    }

    /// The session of a client is wanted elsewhere. Returns what is to be done now, nothing if it has to stay for a moment.
    pub(super) fn stays(&mut self, now: Now, relinquish: Relinquish) -> Option<Relinquish> {
        let Some(upstream) = &mut self.upstream else { return Some(relinquish) };
        let client = &relinquish.client;
        let waits = upstream.leaving.iter().any(|(_, before)| before.client == *client);
        if relinquish.clean_start || !waits && upstream.may_leave(now, now.instant, client) {
            return Some(relinquish);
        }
        upstream.leaving.push_back((now.instant, relinquish));
        None
    }

    /// Lets sessions leave that need not wait any longer; says whether there was one.
    pub(super) fn let_sessions_leave(&mut self, now: Now) -> bool {
        let mut any = false;
        while let Some(upstream) = &mut self.upstream
            && let Some(at) =
                upstream.leaving.iter().position(|(since, left)| upstream.may_leave(now, *since, &left.client))
            && let Some((_, relinquish)) = upstream.leaving.remove(at)
        {
            self.relinquish(now, relinquish);
            any = true;
        }
        any
    }

    /// A session is about to leave: messages that the broker behind has not delivered to it yet go along.
    pub(super) fn flush_upstream(&mut self, now: Now, client: &ClientId) {
        if let Some(upstream) = &mut self.upstream {
            upstream.sidecar.handle(now, sedge_sidecar::Input::Flush(client.clone()));
            self.drain_sidecar(now);
        }
    }

    fn attached(&mut self, now: Now, client: ClientId, answer: Answer) {
        let attaching = self.upstream.as_mut().and_then(|upstream| upstream.attaching.remove(&client));
        let Some((conn, clean_start)) = attaching else { return };
        match answer {
            Answer::Open => {
                if !clean_start {
                    self.sync(now, &client);
                }
                self.claim(client, conn, clean_start);
            }
            Answer::Refused(reason, words) => {
                let words =
                    if words.is_empty() { "the broker behind this node refuses the client".to_owned() } else { words };
                self.broker.refuse(now, conn, reason, words);
            }
        }
    }

    /// The broker behind gets the subscriptions of a session that was here before its conversation was.
    fn sync(&mut self, now: Now, client: &ClientId) {
        let subscriptions = self.broker.ordinary_subscriptions(client).into_iter();
        let requests: Vec<Request> = subscriptions
            .filter(|(filter, ..)| is_foreign(filter.as_str()))
            .map(|(filter, options, id)| Request { filter, options, id, retained: false })
            .collect();
        if let Some(upstream) = self.upstream.as_mut().filter(|_| !requests.is_empty()) {
            upstream.sidecar.handle(now, sedge_sidecar::Input::Sync { client: client.clone(), requests });
        }
    }

    fn answered(&mut self, token: u64, reasons: &[ReasonCode]) {
        let asked = self.upstream.as_mut().and_then(|upstream| upstream.asked.remove(&token));
        let Some(Asked { client, mut changes, filters, ticket }) = asked else { return };
        let adds = changes.iter().any(|change| matches!(change.op, InterestOp::Add { .. }));
        let refused: Vec<_> =
            filters.into_iter().zip(reasons.iter().copied()).filter(|(_, reason)| reason.is_error()).collect();
        if adds && !refused.is_empty() {
            self.broker.refuse_filters(&client, ticket, &refused);
            changes.retain(|change| refused.iter().all(|(filter, _)| *filter != change.filter));
        }
        self.handovers.withhold(&client, &mut changes);
        if !changes.is_empty() || ticket.is_some() {
            self.tell_node(ToNode::Interest(Box::new(Interest { client, changes, ticket })));
        }
    }

    fn published(&mut self, now: Now, token: u64, reason: ReasonCode) {
        let Some(upstream) = &mut self.upstream else { return };
        if !reason.is_error() {
            if let Some(waiting) = upstream.publishing.get_mut(&token) {
                waiting.is_acknowledged = true;
            }
        } else if let Some(ticket) = upstream.publishing.remove(&token).and_then(|waiting| waiting.ticket) {
            self.judged(now, ticket, reason);
        }
        self.let_leave(now);
    }

    /// Publications leave in their order: one that comes to others behind later ones of its shard counts as had, or as wanted by nobody there.
    pub(super) fn let_leave(&mut self, now: Now) {
        let Some(upstream) = &mut self.upstream else { return };
        while let Some((token, waiting)) = upstream.awaited()
            && waiting.since + PATIENCE <= now.instant
        {
            upstream.passed_over = token;
        }
        let passed_over = upstream.passed_over;
        let goes_on = |(token, waiting): &(&u64, &Waiting)| waiting.is_acknowledged || **token <= passed_over;
        let open = upstream.publishing.iter().take_while(goes_on);
        let leave: Vec<u64> = open.filter(|(_, waiting)| waiting.is_acknowledged).map(|(token, _)| *token).collect();
        for token in leave {
            let waiting = self.upstream.as_mut().and_then(|upstream| upstream.publishing.remove(&token));
            let Some(Waiting { message, ticket, matched, .. }) = waiting else { continue };
            self.handovers.catch(&message, false, &mut self.broker);
            self.route(now, &message, ticket, matched);
        }
    }

    /// The session of a client is about to be here: it gets the messages given to the broker behind without it.
    pub(super) fn catch_leaving(&mut self, client: &ClientId) {
        if let Some(upstream) = &self.upstream {
            self.handovers.catch_early(client, upstream.publishing.values().map(|waiting| &waiting.message));
        }
    }

    /// A session comes whose client has one here, which the broker behind has yet to deliver messages to: returns those that come with it.
    pub(super) fn brought_beside(&self, client: &ClientId, session: Option<&SessionState>) -> BTreeSet<MessageId> {
        if self.upstream.is_none() || self.broker.session(client).is_none() {
            return BTreeSet::new();
        }
        session.map(ids_of).unwrap_or_default()
    }

    /// The session of a client leaves, with the messages given to the broker behind for it: returns those that it wants.
    pub(super) fn leaves_with(&mut self, client: &ClientId, session: Option<&SessionState>) -> Vec<MessageId> {
        let mut along = Vec::new();
        // A second request finds no session: it has not taken along publications made since the first one.
        let Some(session) = session else { return along };
        for waiting in self.upstream.iter().flat_map(|upstream| upstream.publishing.values()) {
            let Message { id, topic, .. } = &*waiting.message;
            self.handovers.has_had(client, *id);
            if session.subscriptions.iter().any(|subscription| subscription.filter.matches(topic)) {
                along.push(*id);
            }
        }
        along
    }

    /// When [`Shard::let_leave`], or a session, is wanted at the latest.
    pub(super) fn leaves_at(&self) -> Option<Instant> {
        let upstream = self.upstream.as_ref()?;
        let awaited = upstream.awaited().filter(|_| upstream.publishing.len() > 1).map(|(_, waiting)| waiting.since);
        let leaving = upstream.leaving.front().map(|(since, _)| *since);
        awaited.into_iter().chain(leaving).min().map(|since| since + PATIENCE)
    }
}
