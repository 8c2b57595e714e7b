//! The thread that answers HTTP.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::extract::DefaultBodyLimit;
use axum::{Router, middleware};
use tokio::sync::{oneshot, watch};

use super::error::ApiError;
use super::model::{Listener, Listening, RecoveryReport};
use super::otlp::Export;
use super::table::table;
use super::visitors::{Entrance, Peer};
use super::{desk, guard, history, scale};
use crate::config::Durability;
use crate::daemon::{Addresses, DeathGuard, ListenerAddress};
use crate::identity::Identity;
use crate::runtime::Shared;
use crate::{Config, StartError};

/// Longest time of open requests when the node stops. The shards have ended then: questions to them are answered at once.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// Longest time, then, of traces that are under way to a collector.
const EXPORT_GRACE: Duration = Duration::from_secs(4);

/// Facts that do not change while a node runs.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(super) node: String,
    pub(super) name: String,
    pub(super) incarnation: u64,
    pub(super) cluster: String,
    pub(super) listening: Listening,
    pub(super) durability: &'static str,
    pub(super) recovery: Option<RecoveryReport>,
    /// Where the broker behind the node is, if there is one.
    pub(super) upstream: Option<String>,
    /// Where the broker is beside which the node stands.
    pub(super) mirrored: Option<String>,
    pub(super) data_dir: Option<PathBuf>,
}

fn listener(listener: &ListenerAddress) -> Listener {
    let ListenerAddress { name, protocol, address } = listener;
    Listener { name: name.clone(), protocol: (*protocol).to_owned(), address: address.clone() }
}

impl Facts {
    /// Those of no node in particular.
    #[cfg(any(test, fuzzing))]
    pub(super) fn for_fuzzing() -> Self {
        Self {
            node: String::new(),
            name: String::new(),
            incarnation: 0,
            cluster: String::new(),
            listening: Listening { mqtt: Vec::new(), listeners: Vec::new(), cluster: String::new(), http: None },
            durability: "memory",
            recovery: None,
            upstream: None,
            mirrored: None,
            data_dir: None,
        }
    }

    pub(crate) fn new(
        config: &Config,
        name: &str,
        identity: &Identity,
        addresses: &Addresses,
        recovery: Option<RecoveryReport>,
    ) -> Self {
        Self {
            node: identity.node.to_string(),
            name: name.to_owned(),
            mirrored: (!config.upstream.serves()).then(|| config.upstream.address.clone()),
            upstream: config.upstream.is_used().then(|| config.upstream.address.clone()),
            data_dir: config.node.data_dir.clone(),
            durability: match config.node.durability() {
                Durability::Memory => "memory",
                Durability::Journal => "journal",
                Durability::Fsync => "fsync",
            },
            recovery,
            incarnation: identity.incarnation.get(),
            cluster: config.cluster.name.clone(),
            listening: Listening {
                mqtt: addresses.mqtt.iter().map(ToString::to_string).collect(),
                listeners: addresses.listeners.iter().map(listener).collect(),
                cluster: addresses.cluster.to_string(),
                http: addresses.http.map(|address| address.to_string()),
            },
        }
    }
}

/// State that all handlers share.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) shared: Arc<Shared>,
    pub(super) facts: Arc<Facts>,
    pub(super) history: history::SharedRing,
    /// The last report of the site's controller, and the order to it.
    pub(super) told: scale::SharedTold,
    /// Open streams of events.
    pub(super) streams: Arc<AtomicUsize>,
}

/// The running server.
pub(crate) struct HttpServer {
    thread: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

impl HttpServer {
    /// Without a listener only other nodes are answered.
    pub(crate) fn start(
        listener: Option<std::net::TcpListener>,
        shared: Arc<Shared>,
        facts: Facts,
        export: Option<Export>,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = oneshot::channel();
        let api = Api {
            shared,
            facts: Arc::new(facts),
            history: Arc::default(),
            told: Arc::default(),
            streams: Arc::default(),
        };
        let run = move || {
            let _guard = DeathGuard;
            if let Err(error) = serve(listener, api, export, stopped) {
                tracing::error!(%error, "the HTTP server has ended; clients are served on");
            }
        };
        let thread = thread::Builder::new().name("sedge-http".to_owned()).spawn(run);
        Ok(Self { thread: thread.map_err(StartError::system("start a thread"))?, stop })
    }

    pub(crate) fn stop(self) {
        // The thread may have ended by itself.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!("the HTTP thread did not end in order");
        }
    }
}

fn serve(
    listener: Option<std::net::TcpListener>,
    api: Api,
    export: Option<Export>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        if let Some(waiting) = api.shared.desk.open() {
            tokio::spawn(desk::serve(api.clone(), waiting));
        }
        let (stop_export, stopping) = watch::channel(false);
        let exporting = export.map(|export| tokio::spawn(export.run(api.clone(), stopping)));
        let served = answer(listener, api, stopped).await;
        if let Some(exporting) = exporting {
            // It waits for this as long as it runs.
            let _ = stop_export.send(true);
            let _ = tokio::time::timeout(EXPORT_GRACE, exporting).await;
        }
        served
    })
}

/// Answers requests until the node stops.
async fn answer(listener: Option<std::net::TcpListener>, api: Api, stopped: oneshot::Receiver<()>) -> io::Result<()> {
    let Some(listener) = listener else {
        // A vanished sender means the same.
        let _ = stopped.await;
        return Ok(());
    };
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let entrance = Entrance { listener, visits: Arc::clone(&api.shared.http_visits) };
    let (stop, graceful) = oneshot::channel::<()>();
    let recorder = tokio::spawn(history::record(Arc::clone(&api.shared), Arc::clone(&api.history)));
    let service = router(api).into_make_service_with_connect_info::<Peer>();
    let server = axum::serve(entrance, service).with_graceful_shutdown(async {
        // Both a message and a vanished sender mean the same.
        let _ = graceful.await;
    });
    let mut server = std::pin::pin!(server.into_future());
    tokio::select! {
        ended = &mut server => return ended,
        _ = stopped => {}
    }
    drop(stop);
    recorder.abort();
    // Idle connections of scrapers do not hold the node up.
    tokio::time::timeout(STOP_GRACE, server).await.unwrap_or(Ok(()))
}

pub(super) fn router(api: Api) -> Router {
    table()
        .router
        .fallback(async |uri: axum::http::Uri| ApiError::NotFound(format!("there is no {}", uri.path())))
        .method_not_allowed_fallback(async || ApiError::WrongMethod)
        .layer(DefaultBodyLimit::max(api.shared.http_body_max))
        .layer(middleware::from_fn_with_state(Arc::clone(&api.shared), guard::guard))
        .with_state(api)
}
