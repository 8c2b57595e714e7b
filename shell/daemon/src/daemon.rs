//! A node from start to stop.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use mio::net::{TcpListener, UdpSocket};
use mio::{Poll, Waker};
use sedge_base::{Rng, ShardId};
use sedge_bridge::{Bridges, Mirroring, Rules, Sniffing};
use sedge_broker::{Births, Place};
use sedge_cluster::{Node, Shard, ShardConfig};
use sedge_mqtt::Utf8;
use sedge_sidecar::SidecarConfig;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::access::Gate;
use crate::config::{Digests, Durability, ListenerRates, Setting, UpstreamAddress, UpstreamProxy};
use crate::discovery::{self, Discovered, Discovery, Found, Speaker, Wanted};
use crate::http::{Export, Facts, Guard, HttpServer, Visits};
use crate::identity::{self, Identity};
use crate::recovery::Journals;
use crate::reload::{self, Again, ReloadReport, reload};
use crate::runtime::sockets::{self, Descriptors, FOR_CLIENTS, FOR_HTTP};
use crate::runtime::{
    AddressTable, BrokerPlace, Clock, Door, Events, Hub, Kicks, Letter, Links, MAIL, Mailbox, Parts, Pulse, Shared,
    Upstreams, Users, View, Worker, wall,
};
use crate::seal::Seal;
use crate::supervisor::Supervisor;
use crate::sys::SysReporter;
use crate::transport::{Acceptor, ClusterTls, Listener, UpstreamTls};
use crate::{Config, StartError, awaits, bridges, logging, memory, mirror, node_config, rules, sniff};

/// Name, in errors, of the operation that reads the address of a listener.
const ADDRESS: &str = "read the address of a listener";

/// Where a node listens, with the real ports where the configuration said 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// For clients, without TLS, WebSocket or PROXY protocol: `[mqtt]`.
    pub mqtt: Vec<SocketAddr>,
    /// All listeners for clients.
    pub listeners: Vec<ListenerAddress>,
    /// For other nodes, TCP and UDP.
    pub cluster: SocketAddr,
    /// For the API; `None` when it is switched off.
    pub http: Option<SocketAddr>,
}

/// How long to wait for the node to say where clients can go.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// A listener for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    /// Its name; `mqtt` is that of `[mqtt]`.
    pub name: String,
    /// Protocol of its clients: `tcp`, `tls`, `ws` or `wss`.
    pub protocol: &'static str,
    /// `address:port`, or the path of a Unix socket behind `unix:`.
    pub address: String,
}

/// A running node. Dropping it stops the node as [`Daemon::stop`] does.
pub struct Daemon {
    addresses: Addresses,
    shared: Arc<Shared>,
    shards: Vec<JoinHandle<()>>,
    http: Option<HttpServer>,
    discovery: Option<Discovery>,
    sys: Option<SysReporter>,
    mirror: Option<Arc<Mirroring>>,
    sniff: Option<Arc<Sniffing>>,
    bridges: Option<Arc<Bridges>>,
    rules: Option<Arc<Rules>>,
    /// Held until the node is gone: keeps the data directory locked.
    _identity: Identity,
}

impl Daemon {
    /// Starts a node; when this returns, it listens.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let descriptors = sockets::raise_socket_limit();
        let identity = Identity::take(&config.node, wall())?;
        // Before anybody can connect.
        let clock = Clock::start(config.node.data_dir.as_deref());
        let mut journals = Journals::open(&config.node, clock.now().wall)?;
        let sockets = Sockets::open(config)?;
        let addresses = sockets.addresses()?;
        let found = discovery::resolve_all(&config.cluster.seeds);
        let node_config = node_config::build(config, &identity, &node_name(config), addresses.cluster, &found)?;
        let advertised = node_config.link_addr;
        let mut rng = Rng::new(identity::random_u64()?);
        let mut node = Node::new(node_config, rng.split(0))
            .map_err(|error| StartError::Setting { key: "cluster", what: error.to_string() })?;
        let (shared, polls) = share((config, &identity), clock.clone(), descriptors, sockets.listeners)?;
        clock.keep();
        log_start(config, &identity, &addresses, advertised, shared.connections_max);
        let name = node_name(config);
        let report = journals.as_ref().map(|journals| journals.report.clone());
        let facts = Facts::new(config, &name, &identity, &addresses, report);
        if let Some(journals) = &mut journals {
            journals.restore_node(&mut node);
        }
        // They ask the shards and have answers as soon as those run.
        let mirror = mirror::start(config, &identity.node.to_string(), &shared)?;
        let sniff = sniff::start(config, &identity.node.to_string(), &shared)?;
        let bridges = bridges::start(config, &shared)?;
        let rules = rules::start(config, &shared)?;
        let export = Export::new(&config.otlp, &facts)?;
        let http = Some(HttpServer::start(sockets.http, Arc::clone(&shared), facts, export)?);
        let key = config.cluster.key.as_ref().map(|key| key.expose().as_bytes());
        let links = Links::new(sockets.cluster, sockets.datagrams, key, shared.cluster_tls.clone());
        let hub = Hub { node, links, kicks: Kicks::default(), asks: BTreeMap::new(), last_ask: 0 };
        let door = Door::new(sockets.acceptors);
        let parts = shard_parts((config, &identity), &shared, polls, (hub, door), journals, &mut rng)?;
        let shards = parts.into_iter().map(spawn_shard).collect::<Result<Vec<_>, _>>()?;
        let wanted = wanted(config, &identity, found, advertised, (clock, rng))?;
        let discovery = Discovery::start(wanted, &shared)?;
        let sys = SysReporter::start(Arc::clone(&shared), config.sys.interval, &name)
            .map_err(StartError::system("start a thread"))?;
        Ok(Self {
            addresses,
            shared,
            shards,
            http,
            discovery: Some(discovery),
            sys: Some(sys),
            mirror,
            sniff,
            bridges: Some(bridges),
            rules: Some(rules),
            _identity: identity,
        })
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Where it listens.
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Reads again what is kept in files of its own, such as certificates, and the configuration; see [`ReloadReport`].
    pub fn reload(&self) -> ReloadReport {
        reload(&self.shared)
    }

    /// Sets the action for a node that is empty and was to stop then (`POST /api/v1/drain?stop=true`); the first one counts. It is called
    /// on one of the node's threads and must not wait for them.
    pub fn when_drained(&self, stop: impl Fn() + Send + Sync + 'static) {
        // A second action is ignored.
        let _ = self.shared.stopper.set(Box::new(stop));
    }

    /// Says good-bye to clients and nodes, waits a moment until they have read it, and ends all threads.
    pub fn stop(self) {
        drop(self);
    }

    /// Where clients reach the other nodes, as far as the node answers.
    fn client_addresses(&self) -> Arc<[Utf8]> {
        let (sender, answer) = mpsc::channel();
        let ask = move |view: &View<'_>| {
            // Nobody listens any more when this took too long.
            let _ = sender.send(view.node.map(Node::client_addresses).unwrap_or_default());
        };
        self.shared.post(ShardId(0), Letter::Query(Box::new(ask)));
        answer.recv_timeout(STOP_PATIENCE).unwrap_or_default().into()
    }

    fn stop_now(&mut self) {
        if self.shared.stopping.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::info!("stopping");
        // While the shards can still take what they say.
        drop(self.mirror.take());
        drop(self.sniff.take());
        drop(self.bridges.take());
        drop(self.rules.take());
        drop(self.discovery.take());
        drop(self.sys.take());
        let elsewhere = self.client_addresses();
        for number in 0..self.shards.len() {
            self.shared.post(ShardId(u16::try_from(number).unwrap_or(0)), Letter::Stop(Arc::clone(&elsewhere)));
        }
        for shard in self.shards.drain(..) {
            if shard.join().is_err() {
                tracing::error!("a shard did not end in order");
            }
        }
        self.shared.events.wake();
        if let Some(http) = self.http.take() {
            http.stop();
        }
        self.shared.clock.keep();
        tracing::info!(uptime_seconds = self.shared.clock.uptime().as_secs(), "stopped");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop_now();
    }
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// Reads the configuration again; the error says everything that is wrong with it.
pub type Read<T> = Box<dyn Fn() -> Result<T, String> + Send + Sync>;

/// How the configuration is read while the node runs.
pub struct ReadAgain {
    /// As [`Config::load_comparable`] does: on SIGHUP and through the API.
    pub config: Read<(Config, Digests)>,
    /// As [`Config::explain`] does: for those who look.
    pub settings: Read<Vec<Setting>>,
}

impl std::fmt::Debug for ReadAgain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadAgain").finish_non_exhaustive()
    }
}

/// Serves one node until SIGTERM or SIGINT, or until it is empty and was to stop then. Calls `ready` as soon as it listens. A second signal ends the process at once.
/// SIGHUP makes it [reload](Daemon::reload).
pub fn run(
    (config, digests): (Config, Digests),
    again: ReadAgain,
    ready: impl FnOnce(&Addresses),
) -> Result<(), StartError> {
    logging::log_panics();
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(StartError::system("listen to signals"))?;
    let daemon = Daemon::start(&config)?;
    // It may hold a secret, and nobody needs it any more.
    drop(config);
    let told = signals.handle();
    daemon.when_drained(move || told.close());
    // There is no second one.
    let _ = daemon.shared.again.set(Again::new(again, digests));
    ready(daemon.addresses());
    let supervisor = Supervisor::from_environment().map(|supervisor| supervisor.ready(&daemon.shared)).transpose();
    let watch = supervisor.map_err(StartError::system("start a thread"))?;
    memory::release_code();
    let signal = signals.forever().find(|signal| {
        if *signal == SIGHUP {
            daemon.reload();
        }
        *signal != SIGHUP
    });
    if let Some(signal) = signal {
        tracing::info!(signal = signal_hook::low_level::signal_name(signal), "told to stop");
    } else {
        tracing::info!("the node is empty and stops, as it was asked to; exit code 0");
    }
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::new(AtomicBool::new(true)))
            .map_err(StartError::system("listen to signals"))?;
    }
    drop(watch);
    daemon.stop();
    Ok(())
}

fn log_start(config: &Config, identity: &Identity, addresses: &Addresses, advertised: SocketAddr, clients_max: usize) {
    tracing::info!(
        node = %identity.node, version = env!("CARGO_PKG_VERSION"), cluster = config.cluster.name,
        shards = config.node.shard_count(), clients_max, "starting",
    );
    for ListenerAddress { name, protocol, address } in &addresses.listeners {
        tracing::info!(listener = name, protocol, address, "listening for clients");
    }
    let http = addresses.http.map(tracing::field::display);
    let links = config.cluster.protection();
    tracing::info!(http, cluster = %addresses.cluster, %advertised, links, "listening");
}

/// Where this node looks for others; `me` is where they find it.
fn wanted(
    config: &Config,
    identity: &Identity,
    found: Found,
    me: SocketAddr,
    (clock, mut rng): (Clock, Rng),
) -> Result<Wanted, StartError> {
    let key = config.cluster.key.as_ref().map(|key| key.expose().as_bytes());
    let multicast = config.multicast().map(|multicast| Speaker {
        config: multicast,
        seal: Seal::of_beacons(key, &config.cluster.name),
        me,
        clock,
        rng: rng.split(u64::MAX),
    });
    let etcd = config.etcd(&identity.node.to_string(), me)?;
    let (seeds, period) = (config.cluster.seeds.clone(), config.discovery.interval);
    Ok(Wanted { seeds, found, period, multicast, etcd, kubernetes: config.kubernetes() })
}

/// How listings and `$SYS` call the node.
pub(crate) fn node_name(config: &Config) -> String {
    if config.node.name.is_empty() {
        return rustix::system::uname().nodename().to_string_lossy().into_owned();
    }
    config.node.name.clone()
}

struct Sockets {
    /// Where clients come in.
    acceptors: Vec<Acceptor>,
    /// The same, as their connections see them, in the same order.
    listeners: Vec<Listener>,
    /// Of `[mqtt]`.
    plain: Option<SocketAddr>,
    cluster: TcpListener,
    datagrams: UdpSocket,
    http: Option<std::net::TcpListener>,
}

impl Sockets {
    fn open(config: &Config) -> Result<Self, StartError> {
        let (mut acceptors, mut listeners, mut plain) = (Vec::new(), Vec::new(), None);
        // Beside a broker the node serves nobody.
        let serves = config.upstream.serves();
        if config.mqtt.enabled && serves {
            let listener = sockets::listen(FOR_CLIENTS, SocketAddr::new(config.mqtt.bind, config.mqtt.port))?;
            let address = listener.local_addr().map_err(StartError::system(ADDRESS))?;
            acceptors.push(Acceptor::Tcp(TcpListener::from_std(listener)));
            listeners.push(Listener::plain("mqtt", address.to_string(), &ListenerRates::default(), &config.limits));
            plain = Some(address);
        }
        for (name, settings) in config.listeners.iter().filter(|_| serves) {
            let acceptor = sockets::listen_as(name, settings)?;
            let address = acceptor.address().map_err(StartError::system(ADDRESS))?;
            let listener = Listener::new(name, address, settings, &config.limits)
                .map_err(|(key, what)| StartError::Certificates { name: name.clone(), key, what })?;
            acceptors.push(acceptor);
            listeners.push(listener);
        }
        let (cluster, datagrams) = sockets::open_cluster_port(&config.cluster)?;
        let http = if config.http.enabled {
            Some(sockets::listen(FOR_HTTP, SocketAddr::new(config.http.bind, config.http.port))?)
        } else {
            None
        };
        Ok(Self { acceptors, listeners, plain, cluster, datagrams, http })
    }

    fn addresses(&self) -> Result<Addresses, StartError> {
        let listener = |listener: &Listener| ListenerAddress {
            name: listener.name.clone(),
            protocol: listener.protocol.name(),
            address: listener.address.clone(),
        };
        let read = || -> io::Result<Addresses> {
            Ok(Addresses {
                mqtt: self.plain.into_iter().collect(),
                listeners: self.listeners.iter().map(listener).collect(),
                cluster: self.cluster.local_addr()?,
                http: self.http.as_ref().map(std::net::TcpListener::local_addr).transpose()?,
            })
        };
        read().map_err(StartError::system(ADDRESS))
    }
}

fn share(
    (config, identity): (&Config, &Identity),
    clock: Clock,
    descriptors: Option<u64>,
    listeners: Vec<Listener>,
) -> Result<(Arc<Shared>, Vec<Poll>), StartError> {
    let make = || -> io::Result<(Vec<Mailbox<Letter>>, Vec<Poll>)> {
        let mut boxes = Vec::new();
        let mut polls = Vec::new();
        for _ in 0..config.node.shard_count() {
            let poll = Poll::new()?;
            boxes.push(Mailbox::new(Waker::new(poll.registry(), MAIL)?));
            polls.push(poll);
        }
        Ok((boxes, polls))
    };
    let descriptors =
        Descriptors::share(descriptors, usize::from(config.node.shard_count()), config.http.max_connections);
    let (boxes, polls) = make().map_err(StartError::system("make an event loop"))?;
    let shared = Shared {
        place: (identity.node.to_string(), node_name(config)),
        make: Some(config.upstream.make.clone()).filter(|make| !make.is_empty()),
        clock,
        busy_shards: AtomicUsize::new(boxes.len()),
        boxes,
        connections: AtomicUsize::new(0),
        listeners,
        connections_max: config.limits.max_connections.min(descriptors.clients),
        http_visits: Arc::new(Visits::new(&config.http, descriptors.http)),
        http_body_max: config.http.max_body_bytes,
        cluster_tls: cluster_tls(config)?,
        gate: Gate::new(config)?,
        api_guard: Guard::new(&config.http, &node_name(config))
            .map_err(|(key, what)| StartError::Setting { key, what })?,
        addresses: AddressTable::new(&config.limits),
        users: Users::new(config.limits.max_connections_per_user),
        discovered: Discovered::default(),
        buffered_max: memory::buffered_max(config.limits.max_buffered_bytes),
        stopping: AtomicBool::new(false),
        stop_when_drained: AtomicBool::new(false),
        stopper: OnceLock::new(),
        again: OnceLock::new(),
        mirror: OnceLock::new(),
        sniff: OnceLock::new(),
        bridges: OnceLock::new(),
        rules: OnceLock::new(),
        answers: answers(config),
        full_journals: AtomicUsize::new(0),
        pulse: Pulse::default(),
        events: Events::default(),
        traces: crate::runtime::Traces::default(),
        desk: crate::http::Desk::default(),
    };
    Ok((Arc::new(shared), polls))
}

/// The TLS configuration of links; `None`: they are not encrypted.
fn cluster_tls(config: &Config) -> Result<Option<Arc<ClusterTls>>, StartError> {
    if !config.cluster.is_encrypted() {
        return Ok(None);
    }
    let tls = ClusterTls::load(config.cluster.node_files());
    tls.map(|tls| Some(Arc::new(tls))).map_err(|(key, what)| StartError::ClusterCertificates { key, what })
}

/// The shards with what their journals held; the first one has the node and the listener.
fn shard_parts(
    (config, identity): (&Config, &Identity),
    shared: &Arc<Shared>,
    polls: Vec<Poll>,
    (hub, door): (Hub, Door),
    mut journals: Option<Journals>,
    rng: &mut Rng,
) -> Result<Vec<Parts>, StartError> {
    let (mut hub, mut door) = (Some(hub), Some(door));
    let mut parts = Vec::new();
    let shards = config.node.shard_count();
    for (number, poll) in (0_u16..).zip(polls) {
        let id = ShardId(number);
        let mut broker = config.limits.broker.clone();
        broker.inside_queues = reload::queues(config, &identity.node.to_string());
        broker.awaits = awaits::sessions(config);
        broker.deadlines = config.deadlines.of_broker();
        broker.births = if config.sparkplug.certificates { Births::Keep } else { Births::Pass };
        broker.total_limit_bytes = shared.buffered_max / usize::from(shards);
        let (max_packet_bytes, connect_timeout) = (broker.max_packet_bytes, broker.connect_timeout);
        let log_lines_per_second = config.log.lines_per_second;
        let max_handshakes = config.limits.max_handshakes;
        let place = Place { node: identity.node, incarnation: identity.incarnation, shard: id, shards };
        let shard_config = ShardConfig { broker, upstream: upstream_settings(config, identity)? };
        let mut shard = Shard::new(shard_config, place, rng.split(u64::from(number) + 1));
        let keeper = match &mut journals {
            Some(journals) => {
                let to_wake = Arc::clone(shared);
                let wake = move || to_wake.nudge(id);
                let node = hub.as_mut().map(|hub| &mut hub.node);
                Some(journals.restore_shard(shared.clock.now(), number, &mut shard, node, wake)?)
            }
            None => None,
        };
        let (hub, door) = (hub.take(), door.take());
        let shared = Arc::clone(shared);
        parts.push(Parts {
            id,
            shared,
            poll,
            shard,
            hub,
            door,
            max_packet_bytes,
            connect_timeout,
            log_lines_per_second,
            max_handshakes,
            keeper,
            upstream: upstream_connections(config)?,
        });
    }
    if let Some(journals) = journals {
        journals.seal()?;
    }
    Ok(parts)
}

/// How the shard deals with a broker behind the node, if there is one.
fn upstream_settings(config: &Config, identity: &Identity) -> Result<Option<SidecarConfig>, StartError> {
    let upstream = &config.upstream;
    if !upstream.is_used() {
        return Ok(None);
    }
    let wrong = |what| StartError::Setting { key: "upstream.password_file", what };
    let password = upstream.password().map_err(wrong)?;
    let user = if upstream.user.is_empty() { None } else { Utf8::new(&upstream.user).ok() };
    Ok(Some(SidecarConfig {
        inlet_prefix: format!("sedge-inlet-{}-", identity.node),
        inlets: upstream.inlets,
        inlet_user: user,
        inlet_password: password.map(Bytes::from),
        tells_origins: upstream.proxy_protocol == UpstreamProxy::V2,
        grace: upstream.grace,
        ..SidecarConfig::default()
    }))
}

/// Where the broker behind the node is, if there is one.
fn upstream_connections(config: &Config) -> Result<Option<(Upstreams, String)>, StartError> {
    let upstream = &config.upstream;
    if !upstream.is_used() {
        return Ok(None);
    }
    let wrong = |key| move |what| StartError::Setting { key, what };
    let tells_origins = upstream.proxy_protocol == UpstreamProxy::V2;
    let place = match upstream.place().map_err(wrong("upstream.address"))? {
        UpstreamAddress::Local(path) => BrokerPlace::local(path, tells_origins),
        UpstreamAddress::Network { host, encrypted } => {
            let tls = encrypted.then(|| UpstreamTls::load(&host.host, upstream.ca_file.as_deref())).transpose();
            let tls = tls.map_err(wrong("upstream.ca_file"))?;
            BrokerPlace::network(host, tls, tells_origins).map_err(StartError::system("start a thread"))?
        }
    };
    Ok(Some((Upstreams::new(place), upstream.address.clone())))
}

/// Room for the answers of each thread to each, if there are journals.
fn answers(config: &Config) -> Vec<Vec<AtomicU64>> {
    let shards = match config.node.durability() {
        Durability::Memory => 0,
        Durability::Journal | Durability::Fsync => config.node.shard_count(),
    };
    (0..shards).map(|_| (0..shards).map(|_| AtomicU64::new(0)).collect()).collect()
}

fn spawn_shard(parts: Parts) -> Result<JoinHandle<()>, StartError> {
    let name = format!("sedge-shard-{}", parts.id.0);
    let worker = Worker::new(parts).map_err(StartError::system("register listeners"))?;
    let run = move || {
        let _guard = DeathGuard;
        if let Err(error) = worker.run() {
            tracing::error!(%error, "a shard's event loop failed");
            std::process::abort();
        }
    };
    thread::Builder::new().name(name).spawn(run).map_err(StartError::system("start a thread"))
}

/// A node with a dead thread would look alive and serve nobody: it ends as a whole, and whoever supervises it starts it anew.
pub(crate) struct DeathGuard;

impl Drop for DeathGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!(thread = thread::current().name(), "a thread of the node has died; the process ends");
            std::process::abort();
        }
    }
}
