//! A site file as a tree whose every part knows its line. The reader of the file makes the tree; the checks of a site work on it.

/// A value and the line it begins in.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Line in the file where the value begins, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// A value of a site file.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, whole or not.
    Number(f64),
    /// Text.
    Text(String),
    /// Several values.
    List(Vec<Tree>),
    /// Values with names, in the order of the file.
    Map(Vec<(Key, Tree)>),
}

/// The name of a value and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Line in the file, from 1.
    pub line: usize,
    /// The name.
    pub name: String,
}

impl Value {
    /// The value in words, for messages.
    pub fn words(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Number(value) => value.to_string(),
            Self::Text(text) => format!("{text:?}"),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) => "a table".to_owned(),
        }
    }
}
