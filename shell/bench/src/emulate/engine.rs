//! The thread that carries packets: TUN devices on one side, the mesh of links on the other, a timer for what is under way.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tun_rs::SyncDevice;

use super::fabric::Fabric;
use super::request::Request;
use super::status::{EmulatorStatus, LinkStatus};
use crate::clock::thread_cpu;
use crate::driver::Ticker;
use crate::error::BenchError;
use crate::num;

/// Packets that are read from one device before the others and the timer have their turn.
const BATCH: usize = 32;
/// Longest packet that a TUN device gives.
const LONGEST: usize = 65_535;
/// How late packets are handed over is told up to this many ns.
const LATEST: u64 = 60_000_000_000;
/// Most time for an answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Orders to the engine's thread.
enum Order {
    Do(Request, Sender<Result<(), String>>),
    Tell(Sender<(Vec<LinkStatus>, EmulatorStatus)>),
    End,
}

/// Handle to the engine's thread, for as many holders as like.
#[derive(Clone)]
pub(super) struct Handle {
    orders: Sender<Order>,
    waker: Arc<Waker>,
}

/// The error for a request after the engine's thread has ended.
fn gone<E>(_: E) -> BenchError {
    BenchError::Network("its thread has ended".to_owned())
}

impl Handle {
    /// Has the engine carry out a request. [`Self::status`] answers requests for a status.
    pub(super) fn request(&self, request: Request) -> Result<(), BenchError> {
        let (sender, answer) = channel();
        self.send(Order::Do(request, sender))?;
        answer.recv_timeout(ANSWER).map_err(gone)?.map_err(BenchError::Usage)
    }

    pub(super) fn status(&self) -> Result<(Vec<LinkStatus>, EmulatorStatus), BenchError> {
        let (sender, answer) = channel();
        self.send(Order::Tell(sender))?;
        answer.recv_timeout(ANSWER).map_err(gone)
    }

    pub(super) fn end(&self) {
        // It may have ended by itself.
        let _ = self.send(Order::End);
    }

    fn send(&self, order: Order) -> Result<(), BenchError> {
        self.orders.send(order).map_err(gone)?;
        self.waker.wake().map_err(BenchError::system("waking the emulated network"))
    }
}

/// Starts the thread with a device for each node of `fabric`.
pub(super) fn spawn(fabric: Fabric, devices: Vec<SyncDevice>) -> Result<(Handle, JoinHandle<()>), BenchError> {
    let failed = BenchError::system("an event loop for the emulated network");
    let (poll, ticker, waker) = set_up(&devices).map_err(failed)?;
    let (orders, inbox) = channel();
    let started = Instant::now();
    let late = Histogram::new_with_bounds(1, LATEST, 3).map_err(|error| BenchError::Driver(error.to_string()))?;
    let mut engine = Engine {
        poll,
        ticker,
        fabric,
        devices,
        inbox,
        started,
        late,
        received: 0,
        delivered: 0,
        refused: 0,
        realtime: false,
        error: None,
    };
    let thread = std::thread::Builder::new().name("network".to_owned()).spawn(move || {
        engine.realtime = go_before_others();
        if let Err(error) = engine.run() {
            engine.error = Some(error.to_string());
            engine.refuse_orders();
        }
    });
    let thread = thread.map_err(BenchError::system("a thread for the emulated network"))?;
    Ok((Handle { orders, waker: Arc::new(waker) }, thread))
}

/// Lets the calling thread run before all threads of ordinary priority, as what it is late by is an error of the emulation.
/// Says whether it may.
fn go_before_others() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}

/// Tokens: devices by their number, then the timer, then the waker.
fn set_up(devices: &[SyncDevice]) -> io::Result<(Poll, Ticker, Waker)> {
    let poll = Poll::new()?;
    for (index, device) in devices.iter().enumerate() {
        device.set_nonblocking(true)?;
        poll.registry().register(&mut SourceFd(&device.as_raw_fd()), Token(index), Interest::READABLE)?;
    }
    let ticker = Ticker::new(poll.registry(), Token(devices.len()))?;
    let waker = Waker::new(poll.registry(), Token(devices.len() + 1))?;
    Ok((poll, ticker, waker))
}

struct Engine {
    poll: Poll,
    ticker: Ticker,
    fabric: Fabric,
    devices: Vec<SyncDevice>,
    inbox: Receiver<Order>,
    started: Instant,
    /// How much later than due packets were handed over in ns.
    late: Histogram<u64>,
    received: u64,
    delivered: u64,
    refused: u64,
    realtime: bool,
    /// Why nothing is carried any more.
    error: Option<String>,
}

impl Engine {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(self.devices.len() + 2);
        let mut buffer = vec![0; LONGEST];
        // Devices that may have more to read: they are told of only when that changes.
        let mut ready: Vec<usize> = Vec::new();
        loop {
            let timeout = if ready.is_empty() { self.sleep()? } else { Some(Duration::ZERO) };
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => done?,
            }
            let mut told = false;
            for event in &events {
                let Token(token) = event.token();
                told |= token > self.devices.len();
                if token < self.devices.len() && !ready.contains(&token) {
                    ready.push(token);
                }
            }
            if told && !self.obey() {
                return Ok(());
            }
            ready.retain(|index| self.read(*index, &mut buffer));
            self.deliver();
        }
    }

    /// Sets the timer for the packet that arrives next; gives a timeout if that has arrived already.
    fn sleep(&mut self) -> io::Result<Option<Duration>> {
        let now = self.now();
        match self.fabric.next() {
            Some(due) if due <= now => Ok(Some(Duration::ZERO)),
            Some(due) => self.ticker.set(due, now).map(|()| None),
            None => Ok(None),
        }
    }

    /// Reads packets from a node. Says whether there may be more.
    fn read(&mut self, index: usize, buffer: &mut [u8]) -> bool {
        let Some(device) = self.devices.get(index) else { return false };
        for _ in 0..BATCH {
            // Whatever the error is: it is told of again when there is something to read.
            let Ok(length) = device.recv(buffer) else { return false };
            self.received += 1;
            let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.fabric.offer(now, index, buffer.get(..length).unwrap_or_default());
        }
        true
    }

    /// Hands over the packets that have arrived.
    fn deliver(&mut self) {
        let now = self.now();
        while let Some((at, node, packet)) = self.fabric.take(now) {
            // How late it is counts until it is handed over, not until the thread woke up.
            self.late.saturating_record(self.now().saturating_sub(at));
            match self.devices.get(node).map(|device| device.send(&packet)) {
                Some(Ok(_)) => self.delivered += 1,
                Some(Err(_)) | None => self.refused += 1,
            }
        }
    }

    /// Carries out the orders. Says whether to go on.
    fn obey(&mut self) -> bool {
        while let Ok(order) = self.inbox.try_recv() {
            // The caller may have given up.
            match order {
                Order::End => return false,
                Order::Do(request, answer) => {
                    let _ = answer.send(self.carry_out(&request));
                }
                Order::Tell(answer) => {
                    let _ = answer.send((self.links(), self.status()));
                }
            }
        }
        true
    }

    /// Answers that nothing is carried any more until told to end.
    fn refuse_orders(&mut self) {
        while let Ok(order) = self.inbox.recv() {
            match order {
                Order::End => return,
                Order::Do(_, answer) => {
                    let _ = answer.send(Err(self.error.clone().unwrap_or_default()));
                }
                Order::Tell(answer) => {
                    let _ = answer.send((self.links(), self.status()));
                }
            }
        }
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), String> {
        let nodes = self.fabric.nodes();
        if request.highest() > nodes {
            return Err(format!("{request}: the network has {nodes} nodes, counted from 1"));
        }
        let now = self.now();
        let everything = |a: usize| move |from: usize, to: usize| from == a || to == a;
        let between = |a: usize, b: usize| move |from: usize, to: usize| (from, to) == (a, b) || (from, to) == (b, a);
        let mut open = |is_meant: &dyn Fn(usize, usize) -> bool, open: bool| {
            self.fabric.each(is_meant, |link| link.set_open(open, now));
        };
        match *request {
            Request::Cut(a, b) => open(&between(a - 1, b - 1), false),
            Request::CutOneWay(a, b) => open(&|from, to| (from, to) == (a - 1, b - 1), false),
            Request::Isolate(a) => open(&everything(a - 1), false),
            Request::Heal => open(&|_, _| true, true),
            Request::HealLink(a, b) => open(&between(a - 1, b - 1), true),
            Request::Rate(a, b, rate) => self.fabric.each(&between(a - 1, b - 1), |link| link.setting.rate = rate),
            Request::Delay(a, b, ms) => {
                self.fabric.each(&between(a - 1, b - 1), |link| link.setting.delay = num::nanos(ms / 1e3));
            }
            Request::Loss(a, b, percent) => {
                self.fabric.each(&between(a - 1, b - 1), |link| link.setting.loss = percent / 100.0);
            }
            Request::Status => {}
        }
        Ok(())
    }

    fn links(&self) -> Vec<LinkStatus> {
        let nodes = self.fabric.nodes();
        let mut all = Vec::new();
        for from in 0..nodes {
            for to in 0..nodes {
                let Some(link) = self.fabric.link(from, to) else { continue };
                let (setting, count) = (&link.setting, &link.count);
                all.push(LinkStatus {
                    from: from + 1,
                    to: to + 1,
                    rate_bit_s: setting.rate,
                    delay_ms: num::seconds(setting.delay) * 1e3,
                    loss_percent: setting.loss * 100.0,
                    open: link.is_open(),
                    packets: count.packets,
                    bytes: count.bytes,
                    lost: count.lost,
                    dropped: count.dropped,
                    cut: count.cut,
                    queue_bytes: link.waiting_bytes(),
                    queue_high_water_bytes: count.high_water,
                    carried: self.fabric.carried(from, to).cloned().unwrap_or_default(),
                });
            }
        }
        all
    }

    fn status(&self) -> EmulatorStatus {
        let us = |nanos: u64| num::real(nanos) / 1e3;
        EmulatorStatus {
            received: self.received,
            // The kernel counts these: the owner of the network asks it.
            unread: 0,
            delivered: self.delivered,
            overflow: self.fabric.overflow,
            stray: self.fabric.stray,
            refused: self.refused,
            late_p50_us: us(self.late.value_at_quantile(0.5)),
            late_p99_us: us(self.late.value_at_quantile(0.99)),
            late_max_us: us(self.late.max()),
            cpu_s: num::seconds(thread_cpu()),
            realtime: self.realtime,
        }
    }
}
