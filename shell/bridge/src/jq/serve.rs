//! The worker: a process that runs one program on one message after the other.

use std::io;

use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
use sedge_jq::Program;

use super::frame;

/// Most bytes of a worker's heap.
const HEAP_BYTES: u64 = 64 << 20;
/// How much sooner than other processes the worker is ended in a shortage of memory.
const OOM_SCORE: &str = "500";

/// Serves on standard input and output until the other end closes.
pub fn serve() -> io::Result<()> {
    bound()?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let hello = frame::read(&mut input)?;
    let (program, bounds) = frame::read_hello(&hello).ok_or_else(|| io::Error::other("a strange first frame"))?;
    let program = Program::compile(program).map_err(io::Error::other)?;
    frame::write(&mut output, &frame::answer(Ok(Vec::new())))?;
    loop {
        let message = match frame::read(&mut input) {
            Ok(message) => message,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        frame::write(&mut output, &frame::answer(program.run(&message, bounds)))?;
    }
}

/// Bounds the process: it ends with its parent, has little memory, and opens and writes no file.
fn bound() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Where there is no such file the kernel chooses as it does.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    let at_most = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Core, at_most(0))?;
    setrlimit(Resource::Fsize, at_most(0))?;
    setrlimit(Resource::Nofile, at_most(0))?;
    setrlimit(Resource::Data, at_most(HEAP_BYTES))?;
    Ok(())
}
