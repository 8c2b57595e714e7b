//! Connections to the HTTP port: how many there may be, and how long each may take.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

use crate::config::HttpConfig;

/// A connection that has not been answered for so long gives way to a new one when there are too many.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait for file descriptors when there are none.
const PAUSE: Duration = Duration::from_millis(250);

/// Open connections, their limits and their counts.
pub(crate) struct Visits {
    /// Most connections at the same time: `http.max_connections`, or fewer if the limit of open files allows no more.
    most: usize,
    request_timeout: Duration,
    idle_timeout: Duration,
    open: Mutex<Open>,
    /// Connections closed because there were too many.
    pub(crate) over_limit: AtomicU64,
    /// Connections closed because a request or an answer took too long, or nothing was asked.
    pub(crate) late: AtomicU64,
    /// Pauses for want of file descriptors.
    pub(crate) starved: AtomicU64,
}

/// Those that are open, the one first that was answered the longest ago.
#[derive(Default)]
struct Open {
    last: u64,
    by_age: BTreeMap<u64, (Instant, oneshot::Sender<()>)>,
}

impl Visits {
    pub(crate) fn new(config: &HttpConfig, most: usize) -> Self {
        let (request_timeout, idle_timeout) = (config.request_timeout, config.idle_timeout);
        let counter = || AtomicU64::new(0);
        let (over_limit, late, starved) = (counter(), counter(), counter());
        Self { most, request_timeout, idle_timeout, open: Mutex::default(), over_limit, late, starved }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.open().by_age.len()
    }

    /// Takes one in, if need be for one that was not answered for a while.
    fn enter(&self, now: Instant) -> Option<(u64, oneshot::Receiver<()>)> {
        let mut open = self.open();
        if open.by_age.len() >= self.most {
            self.over_limit.fetch_add(1, Ordering::Relaxed);
            let oldest = open.by_age.first_entry().filter(|entry| now.duration_since(entry.get().0) >= PATIENCE)?;
            // It ends as soon as its task runs.
            drop(oldest.remove());
        }
        let (sender, dismissed) = oneshot::channel();
        open.last += 1;
        let number = open.last;
        open.by_age.insert(number, (now, sender));
        Some((number, dismissed))
    }

    /// It was answered just now. Returns the number that it has from here on.
    fn answered(&self, now: Instant, number: u64) -> u64 {
        let mut open = self.open();
        let Some((_, sender)) = open.by_age.remove(&number) else { return number };
        open.last += 1;
        let number = open.last;
        open.by_age.insert(number, (now, sender));
        number
    }

    fn leave(&self, number: u64) {
        self.open().by_age.remove(&number);
    }
}

/// The listener.
pub(super) struct Entrance {
    pub(super) listener: TcpListener,
    pub(super) visits: Arc<Visits>,
}

impl axum::serve::Listener for Entrance {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(visitor) = Visitor::new(stream, &self.visits) {
                        return (visitor, peer);
                    }
                }
                Err(error) if is_of_the_peer(&error) => {}
                Err(_) => {
                    self.visits.starved.fetch_add(1, Ordering::Relaxed);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Whether the client was faster away than it was accepted.
fn is_of_the_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Address of the other end, for handlers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, Entrance>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Entrance>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// One connection. It ends when a request takes longer than `http.request_timeout`, from its first byte to the first one of its answer,
/// and when nothing is asked, or nothing of an answer is taken, for `http.idle_timeout`.
pub(super) struct Visitor {
    stream: TcpStream,
    visits: Arc<Visits>,
    number: u64,
    dismissed: oneshot::Receiver<()>,
    /// Whether a request has begun that is not answered.
    is_asking: bool,
    deadline: Pin<Box<Sleep>>,
}

impl Visitor {
    fn new(stream: TcpStream, visits: &Arc<Visits>) -> Option<Self> {
        let (number, dismissed) = visits.enter(Instant::now())?;
        let deadline = Box::pin(sleep(visits.request_timeout));
        Some(Self { stream, visits: Arc::clone(visits), number, dismissed, is_asking: false, deadline })
    }

    /// An error once its time is over.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if Pin::new(&mut self.dismissed).poll(context).is_ready() {
            return Poll::Ready(io::ErrorKind::ConnectionAborted.into());
        }
        ready!(self.deadline.as_mut().poll(context));
        self.visits.late.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(io::ErrorKind::TimedOut.into())
    }

    fn wait(&mut self, time: Duration) {
        self.deadline.as_mut().reset(Instant::now() + time);
    }

    fn note_written(&mut self) {
        if std::mem::take(&mut self.is_asking) {
            self.number = self.visits.answered(Instant::now(), self.number);
        }
        self.wait(self.visits.idle_timeout);
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.visits.leave(self.number);
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(read) => {
                if buffer.filled().len() > before && !std::mem::replace(&mut self.is_asking, true) {
                    let time = self.visits.request_timeout;
                    self.wait(time);
                }
                Poll::Ready(read)
            }
            Poll::Pending => self.poll_end(context).map(Err),
        }
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(written) => {
                self.note_written();
                Poll::Ready(written)
            }
            Poll::Pending => self.poll_end(context).map(Err),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits(most: usize) -> Visits {
        Visits::new(&HttpConfig::default(), most)
    }

    /// SEC
    #[test]
    fn who_was_not_answered_for_a_while_gives_way() {
        let visits = visits(2);
        let now = Instant::now();
        let (first, mut first_ends) = visits.enter(now).unwrap();
        let (second, mut second_ends) = visits.enter(now).unwrap();
        assert!(visits.enter(now).is_none(), "both are new");
        let later = now + PATIENCE;
        let first = visits.answered(later, first);
        assert!(visits.enter(later).is_some());
        assert_eq!(second_ends.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(first_ends.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        visits.leave(second);
        visits.leave(first);
        assert_eq!((visits.count(), visits.over_limit.load(Ordering::Relaxed)), (1, 2));
    }
}
