//! Violation of a promise, as a checker or the model reports it.

use std::fmt;

/// A violation of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the checker that found the violation.
    pub checker: &'static str,
    /// Observation of the checker, in one sentence.
    pub message: String,
}

impl Violation {
    /// A violation that the checker with this name found.
    #[must_use]
    pub fn new(checker: &'static str, message: impl Into<String>) -> Self {
        Self { checker, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.checker, self.message)
    }
}
