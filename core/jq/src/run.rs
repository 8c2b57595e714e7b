//! The output of a program.

use jaq_core::data::JustLut;
use jaq_core::{Ctx, Vars};
use jaq_json::write::{Pp, write};
use jaq_json::{Val, read};

use crate::compile::Program;

/// Longest text of an error that is passed on, in characters.
const ERROR_CHARS_MAX: usize = 200;

/// How much a program may put out for one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Most outputs.
    pub outputs: usize,
    /// Most bytes of all outputs.
    pub bytes: usize,
}

/// One output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// The text of a JSON value that is no string.
    Json(Vec<u8>),
    /// The bytes of a string.
    Text(Vec<u8>),
}

/// Why a document gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The program has raised an error, or the document is none.
    #[error("{0}")]
    Error(String),
    /// The program has put out more than this many messages.
    #[error("more than {0} outputs")]
    Outputs(usize),
    /// The program has put out more than this many bytes.
    #[error("more than {0} bytes of outputs")]
    Bytes(usize),
}

impl Program {
    /// Runs it on a JSON document: all outputs in order, or none.
    pub fn run(&self, document: &[u8], bounds: Bounds) -> Result<Vec<Output>, Failure> {
        let input = read::parse_single(document).map_err(|error| failure(&error.to_string()))?;
        let context = Ctx::<JustLut<Val>>::new(&self.filter.lut, Vars::new([]));
        let (mut outputs, mut bytes) = (Vec::new(), 0);
        for found in self.filter.id.run((context, input)) {
            let value = match found.map_err(jaq_core::Exn::get_err) {
                Ok(value) => value,
                Err(Ok(error)) => return Err(failure(&error.to_string())),
                Err(Err(_)) => return Err(failure("the program has left itself")),
            };
            if outputs.len() == bounds.outputs {
                return Err(Failure::Outputs(bounds.outputs));
            }
            let output = written(&value);
            let (Output::Json(text) | Output::Text(text)) = &output;
            bytes += text.len();
            if bytes > bounds.bytes {
                return Err(Failure::Bytes(bounds.bytes));
            }
            outputs.push(output);
        }
        Ok(outputs)
    }
}

fn written(value: &Val) -> Output {
    match value {
        Val::TStr(text) | Val::BStr(text) => Output::Text(text.to_vec()),
        Val::Null | Val::Bool(_) | Val::Num(_) | Val::Arr(_) | Val::Obj(_) => {
            let mut text = Vec::new();
            // Writing to a Vec cannot fail.
            let _ = write(&mut text, &Pp::default(), 0, value);
            Output::Json(text)
        }
    }
}

/// An error as one line without control characters.
fn failure(text: &str) -> Failure {
    let plain = |char: char| if char.is_control() { ' ' } else { char };
    Failure::Error(text.chars().take(ERROR_CHARS_MAX).map(plain).collect())
}
