//! The way in for other programs: a Unix socket that takes one request a line and answers each with one line of JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::request::Request;
use super::status::NetworkStatus;
use crate::error::BenchError;
use crate::num;

/// Longest request in bytes.
const LONGEST: u64 = 1_000;
/// Most connections at a time; what comes above is closed at once.
const CONNECTIONS: usize = 16;
/// Most time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Done,
    Error(String),
    Status(Box<NetworkStatus>),
}

/// Handler of requests: returns the state of the network if the request asked for it.
pub(super) type Serve = dyn Fn(Request) -> Result<Option<NetworkStatus>, BenchError> + Send + Sync;

/// Takes requests until it is dropped.
pub(super) struct Control {
    path: PathBuf,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    pub(super) fn listen(path: PathBuf, serve: Arc<Serve>) -> Result<Self, BenchError> {
        // Left by a process that was killed.
        let _ = std::fs::remove_file(&path);
        let failed = |source| BenchError::File { path: path.clone(), source };
        let listener = UnixListener::bind(&path).map_err(failed)?;
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            let busy = Arc::new(AtomicUsize::new(0));
            for stream in listener.incoming() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if busy.fetch_add(1, Ordering::Relaxed) < CONNECTIONS {
                    let (serve, busy) = (Arc::clone(&serve), Arc::clone(&busy));
                    std::thread::spawn(move || {
                        // Whoever asked may have gone.
                        let _ = converse(&stream, &*serve);
                        busy.fetch_sub(1, Ordering::Relaxed);
                    });
                } else {
                    busy.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
        let thread = thread.map_err(BenchError::system("a thread for requests"))?;
        Ok(Self { path, ended, thread: Some(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The thread waits for a connection: this is one.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn converse(stream: &UnixStream, serve: &Serve) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        if reader.by_ref().take(LONGEST).read_line(&mut line)? == 0 {
            return Ok(());
        }
        let too_long = num::count(line.len()) >= LONGEST;
        let answer = match line.trim().parse::<Request>().map_err(BenchError::Usage).and_then(serve) {
            _ if too_long => Answer::Error(format!("a request has at most {LONGEST} bytes")),
            Ok(None) => Answer::Done,
            Ok(Some(status)) => Answer::Status(Box::new(status)),
            Err(error) => Answer::Error(error.to_string()),
        };
        let mut text = serde_json::to_vec(&answer)?;
        text.push(b'\n');
        (&mut &*stream).write_all(&text)?;
        if too_long {
            return Ok(());
        }
    }
}

/// Asks the network behind the socket `path` for something; gives its state if that was asked for.
pub fn ask(path: &Path, request: &Request) -> Result<Option<NetworkStatus>, BenchError> {
    let failed = |source| BenchError::File { path: path.to_owned(), source };
    let mut stream = UnixStream::connect(path).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    writeln!(stream, "{request}").map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed)?;
    match serde_json::from_str(&line) {
        Ok(Answer::Done) => Ok(None),
        Ok(Answer::Status(status)) => Ok(Some(*status)),
        Ok(Answer::Error(text)) => Err(BenchError::Network(text)),
        Err(error) => {
            Err(BenchError::Network(format!("{}: no answer of an emulated network: {error}", path.display())))
        }
    }
}
