//! Subscribes, prints, and starts again when the connection is lost.

use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sedge_mqtt::{
    Packet, Publish, QoS, SubAck, Subscribe, SubscriptionOptions, SubscriptionRequest, TopicFilter, TopicName,
    Unsubscribe, Version,
};

use super::args::SubArgs;
use super::clock::Moment;
use super::record::Record;
use crate::client::{ClientError, Connection, Inbox, reason_words};
use crate::failure::Failure;
use crate::mqtt::{Properties, Target};
use crate::out;
use crate::stop::Stop;

/// How long a signal may go unnoticed.
const TURN: Duration = Duration::from_millis(100);
/// Pause before another attempt to connect.
const RETRY: Duration = Duration::from_secs(1);
/// How long the broker may take to complete QoS 2 handshakes at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long the broker may take to answer SUBSCRIBE and UNSUBSCRIBE.
const ANSWER: Duration = Duration::from_secs(10);
/// Exit code of `mosquitto_sub` when its time is over.
const TIMED_OUT: u8 = 27;

/// Runs `sedge sub`.
pub(crate) fn run(args: &SubArgs) -> Result<(), Failure> {
    subscribe(args).map_err(|failure| if args.mqtt.quiet { Failure::silent(failure.code) } else { failure })
}

fn subscribe(args: &SubArgs) -> Result<(), Failure> {
    let properties = Properties::parse(&args.mqtt.properties)?;
    let target = Target::new(&args.mqtt, &properties, "sub")?;
    let mut topics = parse_filters("-t", &args.topics)?;
    topics.extend(parse_filters("-L", target.url_topic.as_slice())?);
    let listener = Listener {
        args,
        properties,
        topics,
        hidden: parse_filters("-T", &args.filter_out)?,
        unwanted: parse_filters("-U", &args.unsubscribe)?,
        stop: Stop::on_signals()?,
        deadline: args.timeout.map(|timeout| Instant::now() + timeout),
        inbox: Inbox::default(),
        printed: 0,
        was_connected: false,
        target,
    };
    if listener.topics.is_empty() && listener.unwanted.is_empty() {
        return Err(Failure::usage("no topic: give one with -t, or at the end of -L"));
    }
    listener.run()
}

fn parse_filters(flag: &str, texts: &[String]) -> Result<Vec<TopicFilter>, Failure> {
    let parse =
        |text: &String| TopicFilter::new(text).map_err(|error| Failure::usage(format!("{flag} {text}: {error}")));
    texts.iter().map(parse).collect()
}

/// Why listening is over.
enum End {
    Done,
    TimedOut,
}

/// Why listening failed: with the connection, which may be worth another attempt, or for good.
enum Trouble {
    Client(ClientError),
    Final(Failure),
}

impl From<ClientError> for Trouble {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Final(failure)
    }
}

struct Listener<'a> {
    args: &'a SubArgs,
    properties: Properties,
    target: Target,
    topics: Vec<TopicFilter>,
    hidden: Vec<TopicFilter>,
    unwanted: Vec<TopicFilter>,
    stop: Stop,
    deadline: Option<Instant>,
    inbox: Inbox,
    printed: u64,
    /// Whether there has been a connection since the last attempt.
    was_connected: bool,
}

impl Listener<'_> {
    fn run(mut self) -> Result<(), Failure> {
        let mut connected_before = false;
        loop {
            match self.converse(&mut connected_before) {
                Ok(End::Done) => return Ok(()),
                Ok(End::TimedOut) => return Err(Failure::silent(TIMED_OUT)),
                Err(Trouble::Final(failure)) => return Err(failure),
                Err(Trouble::Client(error)) if connected_before && error.is_passing() => {
                    if !self.args.mqtt.quiet {
                        out::note(&format!("warning: {error}; trying again"));
                    }
                }
                Err(Trouble::Client(error)) => return Err(error.into()),
            }
            // Another address is worth an attempt at once.
            let others = self.target.servers.len() > 1 && std::mem::take(&mut self.was_connected);
            self.target.servers.rotate_left(usize::from(others));
            let due = Instant::now() + if others { Duration::ZERO } else { RETRY };
            while Instant::now() < due {
                match self.is_over() {
                    Some(End::TimedOut) => return Err(Failure::silent(TIMED_OUT)),
                    Some(End::Done) => return Ok(()),
                    None => thread::sleep(TURN),
                }
            }
        }
    }

    /// One connection from CONNECT to DISCONNECT.
    fn converse(&mut self, connected: &mut bool) -> Result<End, Trouble> {
        let mut connect = self.target.connect.clone();
        // A session of MQTT 5 that was started here may hold messages from the time without a connection. In 3.1.1 the flag
        // means more: the session would stay for ever.
        connect.clean_start &= !(*connected && connect.version == Version::V5);
        let (mut connection, ack) = Connection::open_any(&mut self.target.servers, &connect, self.args.mqtt.debug)?;
        *connected = true;
        self.was_connected = true;
        self.inbox.reconnected(ack.session_present);
        if let Some(id) = ack.properties.assigned_client_id {
            self.target.connect.client_id = id;
        }
        self.request(&mut connection)?;
        let end = self.listen(&mut connection)?;
        self.complete(&mut connection)?;
        connection.close(self.target.disconnect.clone());
        Ok(end)
    }

    fn request(&self, connection: &mut Connection) -> Result<(), ClientError> {
        if !self.unwanted.is_empty() {
            let packet_id = connection.next_id();
            let user = self.properties.unsubscribe_user.clone();
            connection.send(&Packet::Unsubscribe(Unsubscribe { packet_id, filters: self.unwanted.clone(), user }))?;
        }
        if self.topics.is_empty() {
            return Ok(());
        }
        let options = SubscriptionOptions {
            qos: self.args.mqtt.qos,
            retain_as_published: self.args.retain_as_published,
            ..SubscriptionOptions::default()
        };
        let request = |filter: &TopicFilter| SubscriptionRequest { filter: filter.clone(), options };
        let packet_id = connection.next_id();
        connection.send(&Packet::Subscribe(Subscribe {
            packet_id,
            requests: self.topics.iter().map(request).collect(),
            subscription_id: self.properties.subscription_id,
            user: self.properties.subscribe_user.clone(),
        }))
    }

    fn is_over(&self) -> Option<End> {
        if self.stop.told() {
            return Some(End::Done);
        }
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline).then_some(End::TimedOut)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a client has no use for other packets")]
    fn listen(&mut self, connection: &mut Connection) -> Result<End, Trouble> {
        let mut answers = usize::from(!self.topics.is_empty()) + usize::from(!self.unwanted.is_empty());
        let answers_due = Instant::now() + ANSWER;
        loop {
            if let Some(end) = self.is_over() {
                return Ok(end);
            }
            let turn = Instant::now() + TURN;
            let until = self.deadline.map_or(turn, |deadline| deadline.min(turn));
            let Some(packet) = connection.receive(until)? else {
                if answers > 0 && Instant::now() >= answers_due {
                    return Err(ClientError::NoAnswer("SUBSCRIBE", ANSWER.as_secs()).into());
                }
                continue;
            };
            match packet {
                Packet::Publish(publish) => {
                    if self.publish(publish, connection)? {
                        return Ok(End::Done);
                    }
                }
                Packet::PubRel(release) => self.inbox.released(&release, connection)?,
                Packet::SubAck(ack) => {
                    answers -= 1;
                    self.subscribed(&ack)?;
                }
                Packet::UnsubAck(_) => answers -= 1,
                packet => return Err(ClientError::Unexpected(packet.kind()).into()),
            }
            if answers == 0 && (self.args.exit_after_sub || self.topics.is_empty()) {
                return Ok(End::Done);
            }
        }
    }

    /// Warns of filters that were refused; fails if none is left.
    fn subscribed(&self, ack: &SubAck) -> Result<(), Failure> {
        let mut refused = Vec::new();
        for (filter, reason) in self.topics.iter().zip(&ack.reasons).filter(|(_, reason)| reason.is_error()) {
            let text = ack.reason_string.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            refused.push(format!("the broker refused the subscription to {filter}: {}{text}", reason_words(*reason)));
        }
        if refused.len() == self.topics.len() {
            return Err(Failure::failed(refused.join("\n")));
        }
        if !self.args.mqtt.quiet {
            for line in &refused {
                out::note(&format!("warning: {line}"));
            }
        }
        Ok(())
    }

    /// Prints a message and acknowledges it, in this order; says whether it was the last one.
    fn publish(&mut self, publish: Publish, connection: &mut Connection) -> Result<bool, Trouble> {
        let Some(arrival) = self.inbox.arrived(publish, connection)? else { return Ok(false) };
        if self.args.retained_only && !arrival.publish.retain {
            return Ok(true);
        }
        let stale = self.args.no_retained && arrival.publish.retain;
        let wanted = !stale && self.is_chosen() && !self.hidden.iter().any(|filter| filter.matches(&arrival.topic));
        if wanted {
            self.print(&arrival.topic, &arrival.publish)?;
            if self.args.remove_retained && arrival.publish.retain {
                connection.send(&Packet::Publish(removal(&arrival.topic)))?;
            }
        }
        self.inbox.done(&arrival.publish, connection)?;
        self.printed += u64::from(wanted);
        Ok(self.args.count.is_some_and(|count| self.printed >= count))
    }

    /// Draws whether a message is among those of `--random-filter`.
    fn is_chosen(&self) -> bool {
        let Some(share) = self.args.random_filter else { return true };
        // Without randomness nothing is left out.
        let drawn = getrandom::u32().unwrap_or(0);
        f64::from(drawn) < share / 100.0 * (f64::from(u32::MAX) + 1.0)
    }

    fn print(&self, topic: &TopicName, publish: &Publish) -> Result<(), Failure> {
        let client_id = self.target.connect.client_id.as_str();
        let record = Record { topic, publish, client_id, at: Moment::now() };
        let printed = if let Some(format) = &self.args.format {
            format.apply(&record, self.args.pretty)
        } else if self.args.json {
            record.json(self.args.pretty).map(String::into_bytes)
        } else {
            Ok(plain(topic, publish, self.args.verbose))
        };
        match printed {
            Ok(mut line) => {
                if !self.args.no_line_end {
                    line.push(b'\n');
                }
                out::message(&line)
            }
            Err(what) => {
                if !self.args.mqtt.quiet {
                    out::note(&format!("warning: {what}"));
                }
                Ok(())
            }
        }
    }

    /// Ends open QoS 2 handshakes, so that the broker does not deliver messages again that were printed.
    fn complete(&mut self, connection: &mut Connection) -> Result<(), ClientError> {
        let until = Instant::now() + LAST_WORDS;
        while self.inbox.is_open() {
            match connection.receive(until)? {
                Some(Packet::PubRel(release)) => self.inbox.released(&release, connection)?,
                Some(_) => {}
                None => return Ok(()),
            }
        }
        Ok(())
    }
}

/// A payload as `mosquitto_sub` prints it.
fn plain(topic: &TopicName, publish: &Publish, verbose: bool) -> Vec<u8> {
    if !verbose {
        return publish.payload.to_vec();
    }
    let payload: &[u8] = if publish.payload.is_empty() { b"(null)" } else { &publish.payload };
    [topic.as_bytes(), b" ", payload].concat()
}

/// The publication that removes the retained message of `topic`.
fn removal(topic: &TopicName) -> Publish {
    Publish {
        dup: false,
        qos: QoS::AtMostOnce,
        retain: true,
        topic: Some(topic.clone()),
        packet_id: None,
        payload: Bytes::new(),
        properties: None,
    }
}
