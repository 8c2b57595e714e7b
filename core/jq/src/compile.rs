//! From a text to a program.

use jaq_core::data::JustLut;
use jaq_core::load::{self, Arena, File, Loader, lex, parse};
use jaq_core::{Compiler, Filter, compile};
use jaq_json::Val;

/// Most bytes of the stack that compiling takes, with room to spare, in a build that is not optimised.
pub const STACK_BYTES: usize = 16 << 20;
/// Longest program in bytes.
pub const PROGRAM_BYTES_MAX: usize = 4096;
/// Deepest nesting: brackets, signs and words that open or join something, counted without looking at what closes them.
const OPEN_MAX: usize = 256;
/// Signs that open or join something.
const SIGNS: &str = "([{-|,?/+*%=<>";
/// Words that open or join something.
const OPENING: [&str; 10] = ["def", "if", "elif", "reduce", "foreach", "try", "label", "as", "and", "or"];

/// Functions that look at something else than their input. `input` and `inputs` are none of the library's.
const OUTSIDE: [&str; 11] = [
    "debug",
    "debug_empty",
    "env",
    "halt",
    "halt_error",
    "input_line_number",
    "localtime",
    "now",
    "stderr",
    "stderr_empty",
    "strflocaltime",
];

/// Fault of a program, and the byte of the program at which it lies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Fault {
    /// Position of the fault: a byte of the program.
    pub at: usize,
    /// Description of the fault, and of what to do.
    pub what: String,
}

/// A program that can be run.
pub struct Program {
    pub(crate) filter: Filter<JustLut<Val>>,
}

impl core::fmt::Debug for Program {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

impl Program {
    /// Compiles the text of a program. Deep ones take up to [`STACK_BYTES`] of the stack.
    pub fn compile(text: &str) -> Result<Self, Fault> {
        check_size(text)?;
        let is_inside = |name: &str| !OUTSIDE.contains(&name);
        let defs = jaq_core::defs().chain(jaq_std::defs()).chain(jaq_json::defs()).filter(|def| is_inside(def.name));
        let funs = jaq_core::funs().chain(jaq_std::funs()).chain(jaq_json::funs()).filter(|fun| is_inside(fun.0));
        let arena = Arena::default();
        let file = File { code: text, path: () };
        let modules = Loader::new(defs).load(&arena, file).map_err(|errors| of_loader(text, errors))?;
        let filter =
            Compiler::default().with_funs(funs).compile(modules).map_err(|errors| of_compiler(text, errors))?;
        Ok(Self { filter })
    }
}

/// Refuses programs that would take the compiler too deep.
fn check_size(text: &str) -> Result<(), Fault> {
    if text.len() > PROGRAM_BYTES_MAX {
        let what = format!("has {} bytes; at most {PROGRAM_BYTES_MAX}", text.len());
        return Err(Fault { at: PROGRAM_BYTES_MAX, what });
    }
    let mut open = 0;
    let mut word = 0..0;
    for (at, char) in text.char_indices().chain([(text.len(), ' ')]) {
        if char.is_alphanumeric() || char == '_' {
            word.end = at + char.len_utf8();
            continue;
        }
        let is_opening = text.get(word.clone()).is_some_and(|word| OPENING.contains(&word));
        open += usize::from(is_opening) + usize::from(SIGNS.contains(char));
        word = at + char.len_utf8()..at + char.len_utf8();
        if open > OPEN_MAX {
            let what = format!("has more than {OPEN_MAX} brackets, pipes, commas and signs: write two rules");
            return Err(Fault { at, what });
        }
    }
    Ok(())
}

/// Where a part of the program begins; parts of the library lie nowhere.
fn place(text: &str, part: &str) -> usize {
    let at = (part.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    if at <= text.len() { at } else { 0 }
}

fn shown(part: &str) -> String {
    let part: String = part.chars().take(20).collect();
    if part.is_empty() { "the end".to_owned() } else { format!("{part:?}") }
}

fn of_loader(text: &str, errors: load::Errors<&str, ()>) -> Fault {
    let faults = errors.into_iter().flat_map(|(_, error)| match error {
        load::Error::Io(found) => {
            let what = "modules cannot be imported: write it all here";
            found.into_iter().map(|(part, _)| Fault { at: place(text, part), what: what.to_owned() }).collect()
        }
        load::Error::Lex(found) => found.into_iter().map(|error| of_lexer(text, &error)).collect(),
        load::Error::Parse(found) => found.into_iter().map(|error| of_parser(text, &error)).collect::<Vec<_>>(),
    });
    first(faults)
}

fn of_lexer(text: &str, (expected, found): &lex::Error<&str>) -> Fault {
    Fault { at: place(text, found), what: format!("expected {}, found {}", expected.as_str(), shown(found)) }
}

fn of_parser(text: &str, (expected, found): &parse::Error<&str>) -> Fault {
    Fault { at: place(text, found), what: format!("expected {}, found {}", expected.as_str(), shown(found)) }
}

fn of_compiler(text: &str, errors: compile::Errors<&str, ()>) -> Fault {
    first(errors.into_iter().flat_map(|(_, errors)| errors).map(|(part, undefined)| {
        let kind = undefined.as_str();
        let hint = match part {
            "now" => "; the time of the message is .time",
            "input" | "inputs" | "env" | "$ENV" | "halt" | "halt_error" | "debug" | "stderr" | "localtime" => {
                ": a program looks at its message and nothing else"
            }
            _ => "",
        };
        Fault { at: place(text, part), what: format!("there is no {kind} {part}{hint}") }
    }))
}

fn first(faults: impl Iterator<Item = Fault>) -> Fault {
    let fault = faults.min_by_key(|fault| fault.at);
    fault.unwrap_or_else(|| Fault { at: 0, what: "is no jq program".to_owned() })
}
