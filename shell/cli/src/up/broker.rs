//! A broker behind a node, as a child process.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use sedge_controller::process::{GRACE, wait_until};

use super::plan::BrokerPlan;
use crate::failure::Failure;
use crate::stop::Stop;

/// How long a broker may take until it takes clients: some start a virtual machine of their own first.
const READY: Duration = Duration::from_mins(2);
const TURN: Duration = Duration::from_millis(20);
/// How long one answer may take.
const ANSWER: Duration = Duration::from_secs(1);
/// CONNECT of MQTT 3.1.1 without a client id, and DISCONNECT.
const CONNECT: &[u8] = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x0a\x00\x00";
const DISCONNECT: &[u8] = b"\xe0\x00";
const CONNACK: u8 = 0x20;

/// A broker that was started. Dropping it ends it, unless it was released.
#[derive(Debug)]
pub(super) struct Broker {
    pub(super) plan: BrokerPlan,
    /// Which node is before it.
    pub(super) node: String,
    child: Option<Child>,
    pid: u32,
}

impl Broker {
    pub(super) fn start(plan: &BrokerPlan, node: &str, detached: bool) -> Result<Self, Failure> {
        let child = sedge_bench::start_broker(&plan.make, plan.port, &plan.dir, detached)
            .map_err(|error| Failure::cannot_start(format!("--upstream {}: {error}", plan.make)))?;
        let (plan, node, pid) = (plan.clone(), node.to_owned(), child.id());
        Ok(Self { plan, node, child: Some(child), pid })
    }

    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it answers a client: some listen long before they do.
    pub(super) fn wait_ready(&mut self, stop: &Stop) -> Result<(), Failure> {
        let deadline = Instant::now() + READY;
        let log = self.plan.dir.join("output.log");
        while !answers(self.plan.port) {
            let BrokerPlan { make, port, .. } = &self.plan;
            if self.child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None))) {
                return Err(Failure::cannot_start(format!("{make} has ended; its log is {}", log.display())));
            }
            if stop.told() {
                return Err(Failure::failed("stopped before the cluster was ready"));
            }
            if Instant::now() >= deadline {
                let log = log.display();
                return Err(Failure::cannot_start(format!("{make} does not answer on port {port}; its log is {log}")));
            }
            thread::sleep(TURN);
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // That it has ended by itself is as good.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Lets it go on without this process.
    pub(super) fn release(&mut self) {
        self.child = None;
    }
}

/// Whether something at this port answers a CONNECT, whatever it says.
fn answers(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let mut first = [0];
    stream.set_read_timeout(Some(ANSWER)).is_ok()
        && stream.write_all(CONNECT).is_ok()
        && stream.read_exact(&mut first).is_ok()
        && first[0] == CONNACK
        && stream.write_all(DISCONNECT).is_ok()
}

impl Drop for Broker {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.signal(Signal::TERM);
        wait_until(GRACE, || !matches!(child.try_wait(), Ok(None)));
        self.signal(Signal::KILL);
        // Collects the process; there is nobody left to tell if it cannot be.
        let _ = child.wait();
    }
}
