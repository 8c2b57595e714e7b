//! One node with a journal for each of its threads, which dies between two writes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use sedge_base::{ConnId, Duration, Incarnation, Instant, NodeId, Now, Rng, ShardId, Timestamp};
use sedge_broker::{Place, PublishRate};
use sedge_cluster::link::LinkConfig;
use sedge_cluster::mail::{ToNode, ToShard};
use sedge_cluster::{
    Node, NodeConfig, NodeInput, NodeOutput, Reception, ReceptionResult, Recovery, Shard, ShardConfig, ShardInput,
    ShardOutput,
};
use sedge_mqtt::{Ack, Decoder, Packet, PacketId, QoS, ReasonCode, Version, encode};

use crate::common::{Client, Options};

const SHARDS: u16 = 2;
/// More turns than anything here takes.
const TURNS: usize = 10_000;

enum Mail {
    Shard(ToShard),
    Node(ShardId, ToNode),
}

/// The part of the node that survives.
#[derive(Default)]
struct Disk {
    logs: Vec<Vec<Bytes>>,
    lives: u64,
}

/// A thread: a shard, and the node on the first one.
struct Thread {
    shard: Shard,
    inbox: VecDeque<Mail>,
    /// Made since the last write to the journal: it leaves with the next one.
    outgoing: Vec<(usize, Mail)>,
    from_clients: VecDeque<(ConnId, Bytes)>,
    transmits: BTreeSet<ConnId>,
}

struct Process {
    now: Now,
    node: Node,
    threads: Vec<Thread>,
    conns: BTreeMap<ConnId, usize>,
    commits: usize,
}

impl Process {
    fn start(disk: &mut Disk, now: Now) -> Self {
        disk.lives += 1;
        disk.logs.resize_with(usize::from(SHARDS), Vec::new);
        let (node, incarnation) = (NodeId::new(1), Incarnation::new(disk.lives));
        let config = NodeConfig {
            node,
            incarnation,
            shards: SHARDS,
            links: LinkConfig::new("test", Some(b"secret".to_vec())),
            ..NodeConfig::default()
        };
        let mut rng = Rng::new(disk.lives);
        let mut recoveries = Vec::new();
        for log in &disk.logs {
            let mut recovery = Recovery::default();
            for batch in log {
                recovery.apply(batch.clone()).unwrap();
            }
            assert_eq!(recovery.missing(), 0);
            recoveries.push(recovery);
        }
        let (restored, restored_node) = Recovery::deal(recoveries, now.wall, SHARDS);
        let mut machine = Node::new(config, rng.split(8)).unwrap();
        machine.keep_journal();
        machine.restore(restored_node, true);
        let mut threads = Vec::new();
        for (number, restored) in (0..SHARDS).zip(restored) {
            let place = Place { node, incarnation, shard: ShardId(number), shards: SHARDS };
            let mut shard = Shard::new(ShardConfig::default(), place, rng.split(7));
            shard.keep_journal();
            shard.restore(now, restored);
            let (inbox, outgoing) = (VecDeque::new(), Vec::new());
            let (from_clients, transmits) = (VecDeque::new(), BTreeSet::new());
            threads.push(Thread { shard, inbox, outgoing, from_clients, transmits });
        }
        Self { now, node: machine, threads, conns: BTreeMap::new(), commits: 0 }
    }

    /// Takes in what has come to a thread, without writing anything.
    fn work(&mut self, at: usize) {
        while let Some(mail) = self.threads[at].inbox.pop_front() {
            match mail {
                Mail::Shard(mail) => self.threads[at].shard.handle(self.now, ShardInput::Mail(mail)),
                Mail::Node(from, mail) => self.node.handle(self.now, NodeInput::Mail { from, mail }),
            }
            self.settle(at);
        }
        while let Some((conn, bytes)) = self.threads[at].from_clients.pop_front() {
            self.threads[at].shard.handle(self.now, ShardInput::Received { conn, bytes });
            self.settle(at);
        }
        self.threads[at].shard.handle_timeout(self.now);
        if at == 0 {
            self.node.handle_timeout(self.now);
        }
        self.settle(at);
    }

    fn settle(&mut self, at: usize) {
        loop {
            if let Some(output) = self.threads[at].shard.poll_output() {
                let me = ShardId(u16::try_from(at).unwrap());
                if let ShardOutput::Transmit(conn) = output {
                    self.threads[at].transmits.insert(conn);
                } else if let ShardOutput::ToShard(to, mail) = output {
                    self.mail(at, to, mail);
                } else if let ShardOutput::ToNode(mail) = output {
                    if at == 0 {
                        self.node.handle(self.now, NodeInput::Mail { from: me, mail });
                    } else {
                        self.threads[at].outgoing.push((0, Mail::Node(me, mail)));
                    }
                }
            } else if let Some(output) = if at == 0 { self.node.poll_output() } else { None } {
                if let NodeOutput::ToShard(to, mail) = output {
                    self.mail(at, to, mail);
                }
            } else {
                return;
            }
        }
    }

    fn mail(&mut self, at: usize, to: ShardId, mail: ToShard) {
        if usize::from(to.0) == at {
            self.threads[at].shard.handle(self.now, ShardInput::Mail(mail));
        } else {
            self.threads[at].outgoing.push((usize::from(to.0), Mail::Shard(mail)));
        }
    }

    /// Writes the changes of a thread; the mail that rests on them leaves.
    fn commit(&mut self, at: usize, disk: &mut Disk, people: &mut [Person]) -> bool {
        let mut batch = BytesMut::new();
        self.threads[at].shard.write_records(&mut batch);
        if at == 0 {
            self.node.write_records(&mut batch);
        }
        let mut busy = !batch.is_empty();
        if busy {
            disk.logs[at].push(batch.freeze());
            self.commits += 1;
        }
        for (to, mail) in core::mem::take(&mut self.threads[at].outgoing) {
            busy = true;
            self.threads[to].inbox.push_back(mail);
        }
        for conn in core::mem::take(&mut self.threads[at].transmits) {
            let Some(outbox) = self.threads[at].shard.outbox(conn) else { continue };
            let bytes: Vec<u8> = outbox.take().concat();
            let Some(&who) = self.conns.get(&conn).filter(|_| !bytes.is_empty()) else { continue };
            busy = true;
            for answer in people[who].receive(Bytes::from(bytes)) {
                self.threads[at].from_clients.push_back((conn, answer));
            }
        }
        busy
    }

    /// Turns of random threads until nothing happens, or until a crash after so many writes: then false.
    fn run(&mut self, disk: &mut Disk, people: &mut [Person], rng: &mut Rng, crash_after: usize) -> bool {
        let mut quiet = 0;
        for _ in 0..TURNS {
            let at = usize::try_from(rng.below(u64::from(SHARDS))).unwrap();
            self.now.instant = self.now.instant + Duration::from_millis(1);
            self.work(at);
            if self.commits >= crash_after {
                return false;
            }
            quiet = if self.commit(at, disk, people) { 0 } else { quiet + 1 };
            if quiet > 20 && self.node.is_restored() {
                return true;
            }
        }
        panic!("it never comes to rest");
    }

    fn connect(&mut self, who: usize, person: &mut Person) {
        let bytes = person.client.connect(Options { expiry: 1_000, ..Options::default() });
        let mut reception = Reception::new(SHARDS, ShardId(0), 1024);
        let ReceptionResult::Belongs(shard) = reception.feed(bytes.clone()) else { panic!("a CONNECT was sent") };
        let conn = ConnId(1 + who as u64);
        self.conns.insert(conn, who);
        let thread = &mut self.threads[usize::from(shard.0)];
        thread.shard.handle(
            self.now,
            ShardInput::Opened { conn, peer: String::new(), user: None, rate: PublishRate::default(), inside: false },
        );
        person.place = Some((usize::from(shard.0), conn));
        thread.from_clients.push_back((conn, bytes));
    }

    fn send(&mut self, person: &Person, bytes: Bytes) {
        let (thread, conn) = person.place.expect("it is connected");
        self.threads[thread].from_clients.push_back((conn, bytes));
    }
}

/// A client that repeats what was not acknowledged.
struct Person {
    client: Client,
    place: Option<(usize, ConnId)>,
    /// PUBLISH packets without a PUBREC, and PUBRELs without a PUBCOMP, by packet identifier.
    open: BTreeMap<PacketId, Bytes>,
    released: BTreeMap<PacketId, Bytes>,
    decoder: Decoder,
}

impl Person {
    fn new(id: &str) -> Self {
        let client = Client::new(id, 1, ConnId(0), SHARDS);
        let decoder = Decoder::client(u32::MAX);
        Self { client, place: None, open: BTreeMap::new(), released: BTreeMap::new(), decoder }
    }

    fn publish(&mut self, topic: &str, payload: &str) -> Bytes {
        let bytes = self.client.publish(topic, payload, QoS::ExactlyOnce, false);
        let at = 4 + topic.len();
        let id = PacketId::new(u16::from_be_bytes([bytes[at], bytes[at + 1]])).unwrap();
        self.open.insert(id, bytes.clone());
        bytes
    }

    fn receive(&mut self, bytes: Bytes) -> Vec<Bytes> {
        self.decoder.feed(bytes.clone());
        while let Some(packet) = self.decoder.next().expect("a broker speaks MQTT") {
            if let Packet::PubRec(ack) = packet {
                self.open.remove(&ack.packet_id);
                let mut pubrel = BytesMut::new();
                encode(&Packet::PubRel(Ack::new(ack.packet_id, ReasonCode::Success)), Version::V5, &mut pubrel);
                self.released.insert(ack.packet_id, pubrel.freeze());
            } else if let Packet::PubComp(ack) = packet {
                self.released.remove(&ack.packet_id);
            }
        }
        self.client.receive(bytes)
    }

    fn repeat(&self) -> impl Iterator<Item = Bytes> {
        self.released.values().chain(self.open.values()).cloned()
    }
}

fn scenario(seed: u64, publisher: &str, crash_after: usize) -> bool {
    let mut disk = Disk::default();
    let mut rng = Rng::new(seed);
    let mut now = Now { instant: Instant::from_millis(1_000), wall: Timestamp::from_millis(1_700_000_000_000) };
    let mut process = Process::start(&mut disk, now);
    // Two members of a group and two ordinary subscribers, one of each on either shard.
    let mut people: Vec<_> = ["m0", "m1", "m2", "s0", "s1", "s2", publisher].map(Person::new).into();
    for (who, person) in people.iter_mut().enumerate() {
        process.connect(who, person);
    }
    assert!(process.run(&mut disk, &mut people, &mut rng, usize::MAX));
    for (who, person) in people.iter_mut().enumerate().take(6) {
        let subscribe = person.client.subscribe(if who < 3 { "$share/g/t" } else { "t" }, QoS::ExactlyOnce);
        process.send(person, subscribe);
    }
    assert!(process.run(&mut disk, &mut people, &mut rng, usize::MAX));
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(number.to_string());
        let bytes = people[6].publish("t", &sent[number]);
        process.send(&people[6], bytes);
    }
    process.commits = 0;
    let survived = process.run(&mut disk, &mut people, &mut rng, crash_after);
    // The second crash falls into the recovery of the first.
    for crash_after in [crash_after / 2, usize::MAX] {
        now = process.now;
        process = Process::start(&mut disk, now);
        assert!(process.run(&mut disk, &mut people, &mut rng, usize::MAX) || crash_after != usize::MAX);
        process.commits = 0;
        for (who, person) in people.iter_mut().enumerate() {
            process.connect(who, person);
        }
        let alive = process.run(&mut disk, &mut people, &mut rng, crash_after);
        if alive {
            for bytes in people[6].repeat().collect::<Vec<_>>() {
                process.send(&people[6], bytes);
            }
            process.run(&mut disk, &mut people, &mut rng, crash_after);
        }
    }
    let context = format!("seed {seed}, publisher {publisher}, crash after {crash_after} writes");
    assert!(people[6].open.is_empty() && people[6].released.is_empty(), "{context}: not acknowledged");
    let mut of_group: Vec<_> = people[..3].iter().flat_map(|person| person.client.payloads()).collect();
    of_group.sort_unstable();
    assert_eq!(of_group, sent, "{context}: the group");
    for person in &people[3..6] {
        let mut got = person.client.payloads();
        got.sort_unstable();
        assert_eq!(got, sent, "{context}: {}", person.client.id);
    }
    survived
}

/// FT-21, MQ-06, MQ-14: whatever the moment of the crash, a QoS 2 publication comes to every subscriber and to one member of a shared
/// subscription, on any shard, and to none twice.
#[test]
fn a_crash_between_two_journals_neither_loses_nor_repeats_qos_2() {
    for seed in 0..20 {
        for publisher in ["p0", "p1", "p2", "p3"] {
            let mut crash_after = 0;
            while !scenario(seed, publisher, crash_after) {
                crash_after += 1;
            }
            assert!(crash_after > 4, "there was hardly anything to crash in");
        }
    }
}
