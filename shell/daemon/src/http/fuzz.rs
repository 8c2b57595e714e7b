//! Body of the fuzz target: bytes that anybody may send to the HTTP port, up to the threads that answer.

#![expect(clippy::unwrap_used, reason = "a target that does not start has nothing to tell")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::server::{Api, Facts, router};
use super::visitors::Peer;
use crate::config::Secret;
use crate::{Config, Daemon};

const TOKEN: &str = "0123456789abcdef";
/// Nobody says it but the node, and only to whoever has the token.
const NAME: &str = "node-in-question";
/// How long one side waits for the other. A request that is not complete waits for ever.
const PATIENCE: Duration = Duration::from_millis(10);
/// Most of an answer that is looked at.
const ANSWER_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Whether a request has made this thread panic: the server goes on with the others, and would not tell.
    static HAS_PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// Sends a stream to the HTTP server of a node. Bit 0 of the first byte: the node has no token; bit 1: the client is on this machine.
///
/// Holds: no panic; the answer is HTTP, and no 500; a node with a token says its name only to a client that has shown the token.
pub(crate) fn http(data: &[u8]) {
    let [shape, stream @ ..] = data else { return };
    let has = |text: &str| stream.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()));
    // Their names would be looked up in the network.
    if has("neighbours") {
        return;
    }
    let peer = if shape & 2 == 0 { [192, 0, 2, 7] } else { [127, 0, 0, 1] };
    let nodes = NODES.get_or_init(Nodes::start).lock().unwrap_or_else(PoisonError::into_inner);
    let answer = nodes.answer(shape & 1 == 0, SocketAddr::from((peer, 40_000)), stream);
    assert!(!HAS_PANICKED.get(), "a request makes the server panic");
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", answer.escape_ascii());
    assert_ne!(answer.get(8..12), Some(&b" 500"[..]), "{}", answer.escape_ascii());
    let is_told = answer.windows(NAME.len()).any(|part| part == NAME.as_bytes());
    assert!(!is_told || shape & 1 != 0 || has(TOKEN) || has(NAME), "{}", answer.escape_ascii());
}

static NODES: OnceLock<Mutex<Nodes>> = OnceLock::new();

/// A node with a token and one without, and the thread of their servers.
struct Nodes {
    runtime: Runtime,
    guarded: UnboundedSender<(DuplexStream, SocketAddr)>,
    open: UnboundedSender<(DuplexStream, SocketAddr)>,
    _daemons: [Daemon; 2],
}

impl Nodes {
    fn start() -> Mutex<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            HAS_PANICKED.set(true);
            before(info);
        }));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (guarded, first) = serve(&runtime, Some(Secret::new(TOKEN)));
        let (open, second) = serve(&runtime, None);
        Mutex::new(Self { runtime, guarded, open, _daemons: [first, second] })
    }

    fn answer(&self, is_guarded: bool, peer: SocketAddr, stream: &[u8]) -> Vec<u8> {
        let (mut near, far) = duplex(64 * 1024);
        let door = if is_guarded { &self.guarded } else { &self.open };
        door.send((far, peer)).unwrap();
        self.runtime.block_on(async {
            let mut answer = Vec::new();
            let (mut from, mut to) = tokio::io::split(&mut near);
            let write = async {
                // Whoever does not want to hear the rest closes the connection.
                let _ = tokio::time::timeout(PATIENCE, to.write_all(stream)).await;
            };
            let read = async {
                while answer.len() < ANSWER_BYTES_MAX {
                    match tokio::time::timeout(PATIENCE, from.read_buf(&mut answer)).await {
                        Ok(Ok(1..)) => {}
                        Ok(Ok(0) | Err(_)) | Err(_) => return,
                    }
                }
            };
            tokio::join!(write, read);
            answer
        })
    }
}

/// Starts a node whose HTTP connections come through a channel.
fn serve(runtime: &Runtime, token: Option<Secret>) -> (UnboundedSender<(DuplexStream, SocketAddr)>, Daemon) {
    let mut config = Config::default();
    NAME.clone_into(&mut config.node.name);
    config.node.shards = 1;
    config.mqtt.enabled = false;
    config.cluster.bind = SocketAddr::from(([127, 0, 0, 1], 0)).ip();
    config.cluster.port = 0;
    config.http.enabled = false;
    // Metrics that are open without a token consist of numbers only, but they may name nodes.
    config.http.open.metrics = false;
    config.http.token = token;
    let daemon = Daemon::start(&config).unwrap();
    let facts = Facts { name: NAME.to_owned(), ..Facts::for_fuzzing() };
    let api = Api {
        shared: Arc::clone(daemon.shared()),
        facts: Arc::new(facts),
        history: Arc::default(),
        told: Arc::default(),
        streams: Arc::default(),
    };
    let (sender, connections) = unbounded_channel();
    let service = router(api).into_make_service_with_connect_info::<Peer>();
    runtime.spawn(async move { axum::serve(Channel { connections }, service).await });
    (sender, daemon)
}

/// A listener whose connections come from inside the process.
struct Channel {
    connections: UnboundedReceiver<(DuplexStream, SocketAddr)>,
}

impl Listener for Channel {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        match self.connections.recv().await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(SocketAddr::from(([127, 0, 0, 1], 80)))
    }
}

impl Connected<IncomingStream<'_, Channel>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Channel>) -> Self {
        Self(*stream.remote_addr())
    }
}
