//! The emulated network from inside its nodes: what they measure is what was set. Apart from the other tests, whose times it would disturb.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sedge_bench::emulate::{Delay, LinkStatus, Network, NetworkPlan, Node, Queue, Rate, Request, ask};

const PORT: u16 = 7_000;
/// How long a packet is waited for that is to come.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a packet is waited for that is not to come: many times what it takes.
const SILENCE: Duration = Duration::from_millis(300);

/// A network, or none where none can be emulated: the reason is printed past what captures the output of tests.
fn network(plan: &NetworkPlan) -> Option<Network> {
    if let Some(reason) = Network::unable() {
        writeln!(std::io::stdout(), "SKIP: no network can be emulated here: {reason}").expect("printed");
        return None;
    }
    Some(Network::start(plan).expect("a network"))
}

/// Runs `work` in a thread of its own on a node.
fn on<T: Send + 'static>(node: &Node, work: impl FnOnce(Node) -> T + Send + 'static) -> JoinHandle<T> {
    let node = node.clone();
    std::thread::spawn(move || {
        let space = File::open(format!("/run/netns/{}", node.namespace)).expect("the namespace");
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).expect("entered");
        work(node)
    })
}

/// A socket on a node, at its address there.
fn socket(node: &Node) -> UdpSocket {
    let socket = on(node, |node| UdpSocket::bind((node.site, PORT)).expect("a socket")).join().expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Reads again what was interrupted: one that waits for a limited time ends early when the machine stops the process and lets it go on.
fn uninterrupted<T>(mut read: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn receives(socket: &UdpSocket, within: Duration) -> bool {
    socket.set_read_timeout(Some(within)).expect("a timeout");
    uninterrupted(|| socket.recv(&mut [0; 2_000])).is_ok()
}

fn link(network: &Network, from: usize, to: usize) -> LinkStatus {
    let status = network.status().expect("a status");
    status.links.into_iter().find(|link| (link.from, link.to) == (from, to)).expect("a link")
}

fn pair(network: &Network) -> (&Node, &Node) {
    let [a, b, ..] = network.nodes() else { panic!("two nodes") };
    (a, b)
}

/// BM-15: the round trip takes twice the delay of the link that was drawn, never less and little more.
#[test]
fn the_round_trip_time_is_twice_the_delay() {
    let delay = Delay::Normal(10.0, 2.5);
    let Some(network) = network(&NetworkPlan { nodes: 3, delay, ..NetworkPlan::default() }) else { return };
    let sockets: Vec<UdpSocket> = network.nodes().iter().map(socket).collect();
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let set = 2.0 * link(&network, a + 1, b + 1).delay_ms;
        let (here, there) = (&sockets[a], &sockets[b]);
        let mut shortest = f64::MAX;
        for _ in 0..30 {
            let started = Instant::now();
            here.send_to(&[7; 64], (network.nodes()[b].site, PORT)).expect("sent");
            let (length, from) = uninterrupted(|| there.recv_from(&mut [0; 2_000])).expect("received");
            there.send_to(&vec![7; length], from).expect("sent back");
            uninterrupted(|| here.recv(&mut [0; 2_000])).expect("back");
            let took = started.elapsed().as_secs_f64() * 1e3;
            assert!(took >= set, "{took} ms is less than {set} ms");
            shortest = shortest.min(took);
        }
        println!("{} - {}: set {set:.3} ms, shortest round trip {shortest:.3} ms", a + 1, b + 1);
        assert!(shortest < set + 3.0, "{shortest} ms instead of {set} ms");
    }
}

/// Bytes that a reader of a stream has received so far, and the time since the first read, at every read.
struct Received(Vec<(usize, Duration)>);

impl Received {
    /// Reads at least `bytes`, and on until `enough` or for [`PATIENCE`].
    fn read(stream: &mut TcpStream, bytes: usize, enough: impl Fn(&Self) -> bool) -> Self {
        let mut buffer = vec![0; 65_536];
        let total = uninterrupted(|| stream.read(&mut buffer)).expect("data");
        let started = Instant::now();
        let mut received = Self(vec![(total, Duration::ZERO)]);
        while received.bytes() < bytes || (started.elapsed() < PATIENCE && !enough(&received)) {
            let length = uninterrupted(|| stream.read(&mut buffer)).expect("data");
            assert!(length > 0, "the sender has gone");
            received.0.push((received.bytes() + length, started.elapsed()));
        }
        received
    }

    fn bytes(&self) -> usize {
        self.0.last().expect("data").0
    }

    fn mbit_s(from: (usize, Duration), to: (usize, Duration)) -> f64 {
        f64::from(u32::try_from((to.0 - from.0) * 8).expect("few")) / to.1.saturating_sub(from.1).as_secs_f64() / 1e6
    }

    /// The rate from the first byte to the last.
    fn whole(&self) -> f64 {
        Self::mbit_s(self.0[0], *self.0.last().expect("data"))
    }

    /// The rate in the last second, if it lasted so long: what the link gives where neither the start of TCP nor a busy machine slows it.
    fn last_second(&self) -> f64 {
        let last = *self.0.last().expect("data");
        let Some(second) = last.1.checked_sub(Duration::from_secs(1)) else { return 0.0 };
        let from = self.0.partition_point(|read| read.1 <= second);
        Self::mbit_s(self.0[from.saturating_sub(1)], last)
    }
}

/// BM-15: TCP gets the rate of the link and no more, in both directions at once.
#[test]
fn the_throughput_is_the_rate() {
    const BYTES: usize = 2_500_000;
    // 1,448 of 1,500 bytes are payload: 9.65 Mbit/s at most.
    const RATE: std::ops::RangeInclusive<f64> = 8.5..=9.75;
    let plan =
        NetworkPlan { rate: Rate::bits_per_second(10_000_000), delay: Delay::Fixed(10.0), ..NetworkPlan::default() };
    let Some(network) = network(&plan) else { return };
    let transfer = |from: &Node, to: &Node| {
        let (ready, listening) = channel();
        let reader = on(to, move |node| {
            let listener = TcpListener::bind((node.site, PORT)).expect("a listener");
            ready.send(()).expect("somebody waits");
            let (mut stream, _) = listener.accept().expect("a connection");
            Received::read(&mut stream, BYTES, |received| received.last_second() >= *RATE.start())
        });
        listening.recv().expect("a listener");
        let site = to.site;
        on(from, move |_| {
            let mut stream = TcpStream::connect((site, PORT)).expect("connected");
            let zeros = vec![0; 65_536];
            // Until the other side has seen enough.
            while stream.write_all(&zeros).is_ok() {}
        });
        reader
    };
    let (a, b) = pair(&network);
    for received in [transfer(a, b), transfer(b, a)].map(|reader| reader.join().expect("a rate")) {
        let (whole, last) = (received.whole(), received.last_second());
        println!("10 Mbit/s set, {whole:.2} Mbit/s of payload measured, {last:.2} in the last second");
        assert!(whole <= *RATE.end(), "{whole} Mbit/s");
        assert!(last >= *RATE.start(), "{last} Mbit/s in no second");
    }
    let link = link(&network, 1, 2);
    assert!(link.bytes > 2_500_000 && link.queue_high_water_bytes <= 125_000, "{link:?}");
}

/// BM-15: as many packets get lost as were set, by the seed; every packet is delivered or counted.
#[test]
fn losses_follow_their_share() {
    let Some(network) = network(&NetworkPlan { loss_percent: 10.0, ..NetworkPlan::default() }) else { return };
    let (a, b) = pair(&network);
    let here = socket(a);
    for round in 1..=20 {
        for _ in 0..100 {
            here.send_to(&[0; 100], (b.site, PORT)).expect("sent");
        }
        // In step with the emulator, so that no buffer of the kernel overflows.
        let deadline = Instant::now() + PATIENCE;
        while link(&network, 1, 2).packets < round * 100 {
            assert!(Instant::now() < deadline, "packets are missing");
        }
    }
    let link = link(&network, 1, 2);
    assert_eq!((link.packets, link.dropped, link.cut), (2_000, 0, 0));
    assert!((140..=260).contains(&link.lost), "{} of 2,000", link.lost);
    let emulator = network.status().expect("a status").emulator;
    assert_eq!((emulator.unread, emulator.overflow, emulator.refused), (0, 0, 0));
    assert_eq!(emulator.delivered, emulator.received - emulator.stray - link.lost);
}

/// BM-15: a queue that is full drops, and the link says how much.
#[test]
fn a_full_queue_drops() {
    let plan =
        NetworkPlan { rate: Rate::bits_per_second(1_000_000), queue: Queue::Bytes(10_000), ..NetworkPlan::default() };
    let Some(network) = network(&plan) else { return };
    let (a, b) = pair(&network);
    let (here, there) = (socket(a), socket(b));
    for _ in 0..100 {
        here.send_to(&[0; 972], (b.site, PORT)).expect("sent");
    }
    let received = (0..=100).take_while(|_| receives(&there, SILENCE)).count();
    let link = link(&network, 1, 2);
    assert_eq!(link.dropped + link.packets, 100, "{link:?}");
    assert_eq!(link.packets, u64::try_from(received).expect("few"));
    assert!(link.dropped > 50 && link.queue_high_water_bytes <= 10_000, "{link:?}");
}

/// BM-15: cuts in one direction, of a link and of a node, by the control socket; all of it can be healed.
#[test]
fn cuts_stop_what_they_should_and_nothing_else() {
    let Some(network) = network(&NetworkPlan { nodes: 3, ..NetworkPlan::default() }) else { return };
    let sockets: Vec<UdpSocket> = network.nodes().iter().map(socket).collect();
    let passes = |from: usize, to: usize, within| {
        sockets[from - 1].send_to(&[0; 100], (network.nodes()[to - 1].site, PORT)).expect("sent");
        receives(&sockets[to - 1], within)
    };
    let change = |text: &str| {
        let request: Request = text.parse().expect("a request");
        assert_eq!(ask(network.control(), &request).expect(text), None);
    };
    let check = |closed: &[(usize, usize)]| {
        for from in 1..=3 {
            for to in (1..=3).filter(|to| *to != from) {
                let cut = closed.contains(&(from, to));
                assert_eq!(passes(from, to, if cut { SILENCE } else { PATIENCE }), !cut, "{from} to {to} {closed:?}");
            }
        }
    };
    check(&[]);
    change("cut 1>2");
    check(&[(1, 2)]);
    change("cut 2 3");
    check(&[(1, 2), (2, 3), (3, 2)]);
    change("heal 3 2");
    check(&[(1, 2)]);
    change("heal");
    check(&[]);
    change("isolate 1");
    check(&[(1, 2), (1, 3), (2, 1), (3, 1)]);
    change("heal");
    check(&[]);
    let status = ask(network.control(), &Request::Status).expect("a status").expect("a status");
    assert_eq!(status.nodes.len(), 3);
    assert_eq!(status.links.iter().map(|link| link.cut).sum::<u64>(), 1 + 3 + 1 + 4);
    let error = ask(network.control(), &Request::Isolate(4)).expect_err("no such node").to_string();
    assert!(error.contains("3 nodes"), "{error}");
}

/// BM-15: what one node multicasts, all the others get.
#[test]
fn multicast_reaches_every_other_node() {
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let Some(network) = network(&NetworkPlan { nodes: 4, delay: Delay::Fixed(1.0), ..NetworkPlan::default() }) else {
        return;
    };
    let [first, others @ ..] = network.nodes() else { panic!("nodes") };
    let listeners: Vec<UdpSocket> = others
        .iter()
        .map(|node| {
            let listen = move |node: Node| {
                let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a socket");
                socket.join_multicast_v4(&group, &node.site).expect("joined");
                socket
            };
            on(node, listen).join().expect("a socket")
        })
        .collect();
    socket(first).send_to(b"who is there", (group, PORT)).expect("sent");
    assert!(listeners.iter().all(|listener| receives(listener, PATIENCE)));
    let broadcast = Ipv4Addr::new(first.site.octets()[0], first.site.octets()[1], first.site.octets()[2], 255);
    let speaker = on(first, move |node| {
        let socket = UdpSocket::bind((node.site, PORT + 1)).expect("a socket");
        socket.set_broadcast(true).expect("allowed");
        socket.send_to(b"who is there", (broadcast, PORT)).expect("sent");
    });
    speaker.join().expect("sent");
    assert!(listeners.iter().all(|listener| receives(listener, PATIENCE)));
}

/// BM-15: clients outside reach every node without the emulated links; nodes do not reach each other that way.
#[test]
fn nodes_are_reached_from_here_and_by_the_links_only_from_each_other() {
    let Some(network) = network(&NetworkPlan { delay: Delay::Fixed(5_000.0), ..NetworkPlan::default() }) else {
        return;
    };
    let (a, b) = pair(&network);
    let listener = on(b, |_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a listener"));
    let listener = listener.join().expect("a listener");
    TcpStream::connect((b.host, PORT)).expect("connected");
    listener.accept().expect("accepted");
    let host = b.host;
    assert!(on(a, move |_| TcpStream::connect((host, PORT)).is_err()).join().expect("an answer"));
    let output = a.command("cat").arg("/proc/net/dev").output().expect("a command");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("site0") && text.contains("host0"), "{text}");
}

/// A network whose namespaces no other one can have, once they are gone: the next one takes the first free number.
fn of_its_own(name: &str) -> NetworkPlan {
    NetworkPlan { name: Some(format!("{name}{}n", std::process::id())), ..NetworkPlan::default() }
}

/// BM-15: nothing is left of a network, not even what ran in it.
#[test]
fn a_network_takes_everything_with_it() {
    let Some(network) = network(&of_its_own("whole")) else { return };
    let (a, _) = pair(&network);
    let mut child = a.command("sleep").arg("1000").spawn().expect("a command");
    let (namespace, control) = (a.namespace.clone(), network.control().to_owned());
    let file = |path: &Path| path.metadata().map(|file| file.ino()).ok();
    let before = file(&control).expect("a socket");
    drop(network);
    assert!(!child.wait().expect("ended").success());
    assert!(!Path::new("/run/netns").join(&namespace).exists());
    assert!(file(&control) != Some(before) && !Network::stale().contains(&namespace));
}

/// BM-15: a signal that ends the process ends its network first.
#[test]
fn a_signal_takes_the_network_with_it() {
    const CHILD: &str = "SEDGE_TEST_NETWORK_CHILD";
    if std::env::var_os(CHILD).is_some() {
        // This test again, in a process of its own.
        let mut network = Network::start(&of_its_own("signal")).expect("a network");
        network.remove_on_signals().expect("watched");
        writeln!(std::io::stderr(), "namespace {}", network.nodes()[0].namespace).expect("told");
        loop {
            std::thread::park();
        }
    }
    if network(&NetworkPlan::default()).is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_signal_takes_the_network_with_it", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(child.stderr.take().expect("its output")).lines();
    let namespace = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("namespace ").map(str::to_owned))
        .expect("a network in another process");
    assert!(Path::new("/run/netns").join(&namespace).exists());
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a number")).expect("a process");
    kill_process(pid, Signal::TERM).expect("a signal");
    assert_eq!(child.wait().expect("ended").signal(), Some(Signal::TERM.as_raw()));
    assert!(!Path::new("/run/netns").join(&namespace).exists());
    assert!(!Network::stale().contains(&namespace));
}
