//! Messages that a program makes something of.

use super::{Machine, emit};
use crate::definition::Rule;
use crate::expression::Scope;
use crate::input::Input;
use crate::json;
use crate::transform::{Made, Transform, TransformError, document};

impl Machine {
    /// Gives the machine something that runs the program of its rule.
    pub fn run_programs_by(&mut self, programs: Box<dyn Transform>) {
        self.programs = Some(programs);
    }

    /// Error of the last message from which the program made no output; each error is returned once.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Reason why the last message handed in has to come once more, to another machine that takes the place of this one.
    pub fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    pub(super) fn transform<'a>(&mut self, rule: &'a Rule, input: &Input<'_>, scope: &mut Scope<'a>) {
        let Some(topic) = emit::topic(rule, input.topic, scope) else {
            self.counters.failed += 1;
            return;
        };
        let message = document(input, self.now, scope.opaque);
        let made = match &mut self.programs {
            Some(programs) => programs.run(message.as_bytes()),
            None => Err(TransformError::Broken("nothing here runs jq".to_owned())),
        };
        let is_whole = |made: &Made| !matches!(made, Made::Json(text) if !json::is_valid(text));
        match made {
            Ok(made) if made.iter().all(is_whole) => {
                for made in made {
                    self.put_out(emit::of_program(rule, input, topic.clone(), made));
                }
            }
            Ok(_) => {
                self.counters.jq_failed += 1;
                self.note = Some("jq: an output is no JSON".to_owned());
            }
            Err(TransformError::Failed(what)) => {
                self.counters.jq_failed += 1;
                self.note = Some(format!("jq: {what}"));
            }
            Err(TransformError::OverBudget(what)) => {
                self.counters.jq_over_budget += 1;
                self.note = Some(format!("jq: {what}"));
            }
            Err(TransformError::Broken(what)) => self.broken = Some(what),
        }
    }
}
