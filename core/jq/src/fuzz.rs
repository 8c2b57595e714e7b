//! Body of the fuzz target. A stable test runs it, too, over the committed corpus and mutations of it.

use crate::{Bounds, Output, Program, STACK_BYTES};

const BOUNDS: Bounds = Bounds { outputs: 2, bytes: 1 << 20 };

/// Compiles a program, and passes a document through `.`. The first line is the program, the rest the document.
///
/// Holds: no panic; the stack suffices; a fault lies within the text; a document comes out as one value, which comes out as itself.
/// The program is not run: nothing bounds its time and memory here.
pub fn program(data: &[u8]) {
    std::thread::scope(|scope| {
        let thread =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || compiled_and_passed(data));
        assert!(thread.is_ok_and(|thread| thread.join().is_ok()), "see the panic above");
    });
}

fn compiled_and_passed(data: &[u8]) {
    let mut lines = data.splitn(2, |&byte| byte == b'\n');
    let Some(Ok(text)) = lines.next().map(core::str::from_utf8) else { return };
    if let Err(fault) = Program::compile(text) {
        assert!(fault.at <= text.len() && !fault.what.is_empty(), "{fault:?}");
    }
    let Ok(identity) = Program::compile(".") else { unreachable!("`.` is a program") };
    if let Ok(outputs) = identity.run(lines.next().unwrap_or_default(), BOUNDS) {
        assert_eq!(outputs.len(), 1);
        for output in &outputs {
            let Output::Json(json) = output else { continue };
            assert_eq!(identity.run(json, BOUNDS).as_ref(), Ok(&outputs), "{}", String::from_utf8_lossy(json));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn the_corpus_of_programs_passes() {
        replay(env!("CARGO_MANIFEST_DIR"), "program", 500, super::program);
    }
}

#[cfg(test)]
#[path = "../../../check/replay/mod.rs"]
mod replay;
