//! Programs of one document: their outputs, and the refused ones with the place of the fault.

use sedge_jq::{Bounds, Failure, Output, Program, STACK_BYTES};

const BOUNDS: Bounds = Bounds { outputs: 10, bytes: 1000 };
const DOCUMENT: &str = r#"{"topic":"plant/a/temperature","payload":{"temperature":21.50,"list":[3,1,2]},"time":1000}"#;

fn outputs(program: &str) -> Result<Vec<String>, Failure> {
    let program = Program::compile(program).unwrap_or_else(|fault| panic!("{program}: {fault:?}"));
    let outputs = program.run(DOCUMENT.as_bytes(), BOUNDS)?;
    let shown = |output: Output| match output {
        Output::Json(text) => format!("json {}", String::from_utf8_lossy(&text)),
        Output::Text(text) => format!("text {}", String::from_utf8_lossy(&text)),
    };
    Ok(outputs.into_iter().map(shown).collect())
}

/// DP-02: none, one, several; strings without their quotes.
#[test]
fn a_program_puts_out_any_number() {
    let one = outputs(r#".payload | {t: .temperature, unit: "C"}"#);
    assert_eq!(one, Ok(vec![r#"json {"t":21.50,"unit":"C"}"#.to_owned()]));
    assert_eq!(outputs("empty"), Ok(Vec::new()));
    assert_eq!(outputs(".payload.list | sort[]"), Ok(["json 1", "json 2", "json 3"].map(str::to_owned).to_vec()));
    assert_eq!(outputs(".topic / \"/\" | .[1], null"), Ok(vec!["text a".to_owned(), "json null".to_owned()]));
    assert_eq!(outputs(".time / 1000 | todate"), Ok(vec!["text 1970-01-01T00:00:01Z".to_owned()]));
    assert_eq!(outputs(r#".topic | test("^plant/[a-z]/")"#), Ok(vec!["json true".to_owned()]));
}

/// DP-02: bounds are checked while outputs come, so that one without an end ends.
#[test]
fn bounds_hold_for_a_program_without_an_end() {
    assert_eq!(outputs("repeat(1)"), Err(Failure::Outputs(10)));
    assert_eq!(outputs("range(1e12)"), Err(Failure::Outputs(10)));
    assert_eq!(outputs(r#""x" * 1001"#), Err(Failure::Bytes(1000)));
    assert_eq!(outputs(r#"error("no\nway")"#), Err(Failure::Error(r#""no\nway""#.to_owned())));
    assert!(matches!(outputs(".payload + 1"), Err(Failure::Error(_))));
}

/// DP-02: the fault of a program, with its place.
#[test]
fn a_wrong_program_is_refused_with_its_place() {
    let wrong = [
        (".payload | {t: }", 15, "found \"}\""),
        (".a | foo(1)", 5, "there is no filter foo"),
        (".a | $x", 5, "there is no variable $x"),
        (".a | (.b", 8, "expected closing parenthesis"),
        (r#"import "a" as a; ."#, 8, "cannot be imported"),
    ];
    for (text, at, what) in wrong {
        let fault = Program::compile(text).expect_err(text);
        assert!(fault.at == at && fault.what.contains(what), "{text}: {fault:?}");
    }
}

/// DP-02: nothing of the world but the message.
#[test]
fn there_is_nothing_outside_of_the_message() {
    let outside = [
        "input",
        "inputs",
        "env",
        "$ENV",
        "now",
        "debug",
        "stderr",
        "halt",
        "halt_error",
        "localtime",
        "$__prog_args",
        "input_filename",
    ];
    for text in outside {
        let fault = Program::compile(text).expect_err(text);
        assert!(fault.what.starts_with("there is no"), "{text}: {fault:?}");
    }
}

/// No text makes the compiler panic or take more stack than it says; faults lie within the text.
#[test]
fn deep_and_broken_texts_are_refused_or_compiled() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(compile_deep_and_broken_texts);
    thread.expect("a thread").join().expect("no panic");
}

fn compile_deep_and_broken_texts() {
    let parts = [
        "(",
        "[",
        "{",
        "{a:",
        "-",
        "try ",
        "if . then ",
        "def f: ",
        ". as $x | ",
        "reduce . as $x (",
        "label $a | ",
        ".[",
        "\"\\(",
        ". | ",
        ". , ",
        ".a",
        "?",
        "..",
        "1 + ",
        "1 // ",
        "not and ",
        ".. |= ",
        ". as [",
        ". as {a:",
        "@base64 \"",
        "# ",
        "\u{0}",
        "é",
        "elif ",
        "foreach . as $x (",
        "1 <",
        "f(",
        "break $a ",
        "$__loc__ ",
        "a::b",
        "1+",
        "1*",
        "1==",
        "1 and ",
        "$a",
        "'",
        "\\",
        ".\"a\"",
    ];
    for part in parts {
        for count in [1, 50, 250, 4096 / part.len()] {
            for tail in ["", "1"] {
                let text = format!("{}{tail}", part.repeat(count));
                if let Err(fault) = Program::compile(&text) {
                    assert!(fault.at <= text.len(), "{part:?} {count}: {fault:?}");
                }
            }
        }
    }
}
